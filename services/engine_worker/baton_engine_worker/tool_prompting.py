"""Tools in plain words, for models whose chat template can't show them. Pure.

Definitions go into the system message, earlier calls and their results into ordinary turns, as Hermes does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

_INTRODUCTION = """You can call functions. Each line between <tools> and </tools> describes one:
<tools>
{tools}
</tools>
To call one, write its name and arguments as JSON between <tool_call> and </tool_call>, like this:
<tool_call>
{{"name": "function name", "arguments": {{"argument": "value"}}}}
</tool_call>
Results come back between <tool_response> and </tool_response>. Call a function only where it helps."""

ChatMessage = dict[str, Any]


def in_plain_words(
    messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] | None
) -> list[ChatMessage]:
    """Messages that any template takes: no tools, no tool role, no tool calls."""
    plain: list[ChatMessage] = []
    for are_results, group in groupby(messages, key=lambda message: message["role"] == "tool"):
        turn = list(group)
        plain += [_results(turn)] if are_results else map(_without_calls, turn)
    return _with_introduction(plain, tools) if tools else plain


def _results(messages: Iterable[ChatMessage]) -> ChatMessage:
    """Those that follow each other stand in one message: many templates want roles to alternate."""
    texts = (f"<tool_response>\n{message['content']}\n</tool_response>" for message in messages)
    return {"role": "user", "content": "\n".join(texts)}


def _without_calls(message: ChatMessage) -> ChatMessage:
    calls = message.get("tool_calls")
    if not calls:
        return message
    texts = [message["content"]] if message["content"] else []
    texts += [_call_text(call["function"]) for call in calls]
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return rest | {"content": "\n".join(texts)}


def _call_text(function: Mapping[str, Any]) -> str:
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {function["arguments"] or "{}"}}}\n</tool_call>'


def _with_introduction(messages: list[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    introduction = _INTRODUCTION.format(tools=lines)
    first = messages[0]
    if first["role"] == "system":
        return [first | {"content": f"{first['content']}\n\n{introduction}"}, *messages[1:]]
    return [{"role": "system", "content": introduction}, *messages]
