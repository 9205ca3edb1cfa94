"""Brings messages of the OpenAI kind into the shape that chat templates expect.

Owns that translation and its refusals; knows nothing of any one template. What comes out is made of
plain JSON values, copied, so that a template can neither reach into nor change what the caller holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from baton_engine.errors import InvalidParameter

_MAX_DEPTH = 64


def template_messages(messages: Sequence[Mapping[str, Any]], *, keep_none: bool) -> list[dict[str, Any]]:
    """Text parts joined, tool-call arguments parsed, and absent content made explicit.

    keep_none: an absent content stays None beside tool calls, for templates that ask for it; others
    would fail on adding None to a string and get "".
    """
    if not messages:
        raise InvalidParameter("messages", "messages must hold at least one message")
    return [_message(message, f"messages[{place}]", keep_none) for place, message in enumerate(messages)]


def template_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
    """A plain copy; None if there are none, which is what templates test."""
    return [_plain(tool, f"tools[{place}]") for place, tool in enumerate(tools)] if tools else None


def _message(message: Mapping[str, Any], where: str, keep_none: bool) -> dict[str, Any]:
    plain = _plain(message, where)
    if not isinstance(plain, dict) or not isinstance(plain.get("role"), str):
        raise InvalidParameter(f"{where}.role", f"{where} must be an object with a role")
    tool_calls = plain.pop("tool_calls", None)
    content = _content(plain.pop("content", None), f"{where}.content", keep_none and bool(tool_calls))
    # Templates ask whether a key is there, so one without a value must not be.
    plain = {key: value for key, value in plain.items() if value is not None} | {"content": content}
    if tool_calls:
        if not isinstance(tool_calls, list):
            raise InvalidParameter(f"{where}.tool_calls", f"{where}.tool_calls must be a list")
        plain["tool_calls"] = [_tool_call(call) for call in tool_calls]
    return plain


def _content(content: Any, where: str, keep_none: bool) -> str | None:
    """Parts are joined by line ends, since text-only templates know strings only."""
    if content is None:
        return None if keep_none else ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidParameter(where, f"{where} must be a string or a list of text parts")
    return "\n".join(_text_part(part, f"{where}[{place}]") for place, part in enumerate(content))


def _text_part(part: Any, where: str) -> str:
    if isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text", "refusal"):
        text = part.get("text", part.get("refusal"))
        if isinstance(text, str):
            return text
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise InvalidParameter(where, f"{where} is of type {kind!r}; this model takes text parts only")


def _tool_call(call: Any) -> Any:
    """The wire carries arguments as a JSON string; most templates write them with `tojson`, so parse them."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    text = function["arguments"] or "{}"
    try:
        arguments = json.loads(text)
    except ValueError:
        return call  # what the model wrote was not JSON: it is shown as it was
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": _Arguments(arguments, text)}}


class _Arguments(dict[str, Any]):
    """An object to templates that use `tojson`, and the JSON text to those that expect a string."""

    def __init__(self, arguments: dict[str, Any], text: str) -> None:
        super().__init__(arguments)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidParameter(where, f"{where} is nested more than {_MAX_DEPTH} levels deep")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return require_text(value, where)
    if isinstance(value, Mapping):
        return {require_text(str(key), where): _plain(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where, depth + 1) for item in value]
    raise InvalidParameter(where, f"{where} holds a {type(value).__name__}, which is no JSON value")


def require_text(value: str, where: str) -> str:
    """`value` itself. A lone surrogate (`"\\ud83d"` in JSON) is no text: no tokenizer can encode it."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidParameter(where, f"{where} holds half of a surrogate pair, which is not text") from error
    return str(value)
