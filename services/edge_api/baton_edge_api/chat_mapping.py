"""A validated chat completion request in the relay's own words. Owns what each HTTP parameter means there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, cast

from baton_contracts.openai_requests import (
    AssistantMessage,
    ChatCompletionRequest,
    DeveloperMessage,
    FunctionMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from baton_contracts.prompt import ChatRequest, Message, Part, Rendering, Role
from baton_edge_api.generation_mapping import sampling_of
from baton_edge_api.json_words import as_text
from baton_edge_api.refusals import bad_value
from baton_edge_api.tools import answered_function, called, tools_of

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED_VARIABLES = frozenset(
    {"self", "messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"}
)
"""What a template gets from elsewhere."""


def chat_request(wire: ChatCompletionRequest) -> ChatRequest:
    """Raises RequestFailed, naming the parameter."""
    tools, choice = tools_of(wire)
    return ChatRequest(
        model=wire.model,
        messages=messages_of(wire),
        tools=tools,
        tool_choice=choice,
        template_variables=template_variables(wire.chat_template_kwargs, wire.reasoning_effort),
        rendering=_rendering(wire),
        sampling=sampling_of(
            wire,
            max_tokens=wire.max_completion_tokens or wire.max_tokens,
            logprobs=(wire.top_logprobs or 0) if wire.logprobs else None,
        ),
        priority=wire.priority or 0,
        cache_salt=wire.cache_salt or "",
        stream=bool(wire.stream),
        retrieval=retrieval_mode(wire.retrieval),
        continue_conversation=wire.conversation_id is not None,
    )


def messages_of(wire: ChatCompletionRequest) -> tuple[Message, ...]:
    messages: list[Message] = []
    for index, message in enumerate(wire.messages):
        if isinstance(message, FunctionMessage):
            text, call_id = message.content or "", answered_function(wire.messages, index)
            messages.append(
                Message(role="tool", parts=(Part(text=text, origin="tool"),), tool_call_id=call_id)
            )
        else:
            messages.append(_message(message, index))
    return tuple(messages)


def _message(
    message: SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage, index: int
) -> Message:
    role: Role = "system" if message.role == "developer" else message.role
    content = message.content
    if isinstance(message, AssistantMessage) and content is None:
        content = message.refusal
    origin: Literal["tool", "client"] = "tool" if role == "tool" else "client"
    return Message(
        role=role,
        name=None if isinstance(message, ToolMessage) else message.name,
        parts=tuple(Part(text=text, origin=origin) for text in texts_of(content)),
        tool_calls=called(message, index) if isinstance(message, AssistantMessage) else (),
        tool_call_id=message.tool_call_id if isinstance(message, ToolMessage) else None,
    )


def texts_of(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in cast(list[Any], content):
            yield getattr(part, "text", None) or getattr(part, "refusal", "")


def _rendering(wire: ChatCompletionRequest) -> Rendering:
    opens = wire.add_generation_prompt
    if wire.continue_final_message:
        last = wire.messages[-1]
        if opens:
            raise bad_value("continue_final_message", "excludes add_generation_prompt: true.")
        if not isinstance(last, AssistantMessage) or last.tool_calls or last.function_call:
            raise bad_value(
                "continue_final_message", "the last message must be an assistant's, without calls."
            )
        if not "".join(texts_of(last.content)).strip():
            raise bad_value("continue_final_message", "the last message must have a text that can go on.")
        return "continued"
    return "unopened" if opens is False else "chat"


_WITHOUT_THINKING = ("none", "minimal", "low")


def template_variables(asked: dict[str, Any] | None, effort: str | None) -> str:
    """An effort is told in both ways in which templates ask for it; what a client says itself wins."""
    given = _checked_variables(asked)
    if effort is None:
        return as_text(given, "chat_template_kwargs") if given else ""
    meant = {"reasoning_effort": effort, "enable_thinking": effort not in _WITHOUT_THINKING}
    return as_text(meant | given, "chat_template_kwargs")


def _checked_variables(asked: dict[str, Any] | None) -> dict[str, Any]:
    for name in asked or {}:
        if name in _RESERVED_VARIABLES:
            raise bad_value("chat_template_kwargs", f"{name} can't be given here.")
        if not _VARIABLE.fullmatch(name):
            raise bad_value("chat_template_kwargs", "its keys must be names of template variables.")
    return asked or {}


def retrieval_mode(asked: bool | str | None) -> Literal["auto", "on", "off"]:
    if asked is None:
        return "auto"
    if isinstance(asked, bool):
        return "on" if asked else "off"
    return cast(Literal["auto", "on", "off"], asked)
