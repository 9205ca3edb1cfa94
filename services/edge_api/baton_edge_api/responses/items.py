"""Items: one plain form for those of a request and those that are stored, and the messages that they make.

Owns what the model is shown of an item. Knows nothing of ids' meaning, of HTTP or of the books.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from baton_contracts.openai_responses import (
    Input,
    InputCall,
    InputCallOutput,
    InputItem,
    InputMessage,
    InputReasoning,
    ItemReference,
)
from baton_contracts.prompt import Message, Origin, Part, Role, ToolCall
from baton_edge_api.json_words import plain_json

Item = dict[str, Any]
"""An item as JSON, as it is stored and listed."""


@dataclass(frozen=True)
class Placed:
    """An item on its way into the prompt, with where its text comes from."""

    item: Item
    origin: Origin = "client"


def items_of(given: Input) -> list[Item]:
    if isinstance(given, str):
        return [message_item("user", given)]
    return [_plain(item) for item in given]


def message_item(role: str, text: str) -> Item:
    return {
        "type": "message",
        "role": role,
        "status": "completed",
        "content": [{"type": "input_text", "text": text}],
    }


def _plain(item: InputItem) -> Item:
    """All that is known of it, its id last: it may get another one."""
    match item:
        case InputMessage():
            plain = _message(item)
        case InputCall():
            plain = {
                "type": item.type,
                "call_id": item.call_id,
                "name": item.name,
                "arguments": item.arguments,
            }
        case InputCallOutput():
            output = item.output
            parts = output if isinstance(output, str) else [part.model_dump() for part in output]
            plain = {"type": item.type, "call_id": item.call_id, "output": parts}
        case InputReasoning():
            plain = {"type": item.type, "summary": [part.model_dump() for part in item.summary]}
            if item.content is not None:
                plain["content"] = [part.model_dump() for part in item.content]
        case ItemReference():
            return {"type": "item_reference", "id": item.id}
    status = {"status": item.status or "completed"}
    return plain | status | ({"id": item.id} if item.id else {})


def _message(item: InputMessage) -> Item:
    is_answer = item.role == "assistant"
    content: list[Item]
    if isinstance(item.content, str):
        content = [{"type": "output_text" if is_answer else "input_text", "text": item.content}]
    else:
        content = [part.model_dump() for part in item.content]
    for part in content:
        if part["type"] == "output_text":
            part["annotations"] = []
    return {"type": "message", "role": item.role, "content": content}


@dataclass
class _Answer:
    """An assistant's message while its calls are gathered."""

    parts: tuple[Part, ...] = ()
    calls: list[ToolCall] = field(default_factory=list[ToolCall])

    def message(self) -> Message:
        parts = tuple(part for part in self.parts if part.text) if self.calls else self.parts
        return Message(role="assistant", parts=parts, tool_calls=tuple(self.calls))


def messages_of(placed: Iterable[Placed]) -> list[Message]:
    """A call belongs to the answer before it. Thinking is not shown again, nor is a call that was cut off."""
    messages: list[Message] = []
    answer: _Answer | None = None
    for each in placed:
        item = each.item
        kind = item["type"]
        if kind == "reasoning" or is_cut_call(item):
            continue
        if kind == "function_call":
            answer = answer or _Answer()
            answer.calls.append(_call(item))
            continue
        if answer:
            messages.append(answer.message())
            answer = None
        if kind == "message" and item["role"] == "assistant":
            answer = _Answer(_parts(item["content"], each.origin))
        else:
            messages.append(_message_of(item, each.origin))
    return [*messages, answer.message()] if answer else messages


def is_cut_call(item: Item) -> bool:
    return item["type"] == "function_call" and item.get("status") == "incomplete"


def _message_of(item: Item, origin: Origin) -> Message:
    if item["type"] == "function_call_output":
        output_origin: Origin = "tool" if origin == "client" else origin
        return Message(role="tool", parts=_parts(item["output"], output_origin), tool_call_id=item["call_id"])
    role: Role = "system" if item["role"] == "developer" else item["role"]
    return Message(role=role, parts=_parts(item["content"], origin))


def _parts(content: object, origin: Origin) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Part(text=content, origin=origin),)
    texts = [part.get("text") or part.get("refusal") or "" for part in cast(list[Item], content)]
    return tuple(Part(text=text, origin=origin) for text in texts or [""])


def _call(item: Item) -> ToolCall:
    return ToolCall(call_id=item["call_id"], name=item["name"], arguments=plain_json(item["arguments"]))
