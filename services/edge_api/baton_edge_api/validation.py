"""From the JSON of a chat completion to the relay's ChatRequest, or to the one thing that is wrong with it.

Owns the meaning of the HTTP parameters. Knows nothing of HTTP, keys or NATS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from baton_common.errors import RequestFailed
from baton_contracts.errors import ErrorCode
from baton_contracts.openai_api import (
    TAG_MARK,
    UNKNOWN_ROLE,
    AssistantMessage,
    ChatCompletionRequest,
    ToolMessage,
)
from baton_contracts.prompt import ChatRequest, Message, Part, Role, Sampling
from baton_edge_api.parameters import NO_EFFECT, NOT_SERVED

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KNOWN_PARTS = ("image_url", "input_audio", "file", "refusal", "video_url", "audio_url")
_TYPE_ERRORS = ("int_from_float", "int_parsing", "float_parsing", "bool_parsing", "model_attributes_type")


@dataclass(frozen=True)
class ChatQuestion:
    """A validated request: what goes over the relay, and what only the edge needs."""

    chat: ChatRequest
    include_usage: bool
    conversation_id: str | None
    ignored: tuple[str, ...]
    """Names of parameters without effect, safe to stand in a header."""

    def without_cache(self) -> ChatQuestion:
        return replace(self, chat=self.chat.model_copy(update={"use_cache": False}))


def read_chat(raw: object, *, strict: bool, max_text_chars: int) -> ChatQuestion:
    """Raises RequestFailed, naming the parameter."""
    if not isinstance(raw, dict):
        raise RequestFailed.because("invalid_type", "The body must be a JSON object.")
    try:
        wire = ChatCompletionRequest.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise explain(first) from None
    _check_text_size(wire, max_text_chars)
    _check_consistency(wire)
    _check_served(wire)
    return ChatQuestion(
        chat=_to_chat(wire),
        include_usage=bool(wire.stream_options and wire.stream_options.include_usage),
        conversation_id=wire.conversation_id,
        ignored=_ignored(wire, strict=strict),
    )


def explain(problem: ErrorDetails) -> RequestFailed:
    """The OpenAI form of one pydantic error. Only names and types go into the message, never values."""
    kind = problem["type"]
    param = param_path((*problem["loc"], "role") if kind == UNKNOWN_ROLE else problem["loc"])
    if kind == "missing":
        return RequestFailed.because("missing_required_parameter", f"{param} is missing.", param=param)
    if kind == "literal_error" and param.endswith("].type") and problem["input"] in _KNOWN_PARTS:
        text = f"{param}: only parts of type 'text' are served."
        return RequestFailed.because("unsupported_parameter", text, param=param)
    wrong_type = kind.endswith("_type") or kind in _TYPE_ERRORS
    code: ErrorCode = "invalid_type" if wrong_type else "invalid_value"
    return RequestFailed.because(code, f"{param}: {_sentence(problem['msg'])}", param=param)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def param_path(loc: tuple[int | str, ...]) -> str:
    """`messages[0].content[1].type`, as OpenAI names parameters."""
    path = ""
    for step in loc:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith(TAG_MARK):
            path += f".{step}" if path else step
    return path[:128]


def _bad(param: str, text: str) -> RequestFailed:
    return RequestFailed.because("invalid_value", f"{param}: {text}", param=param)


def _not_served(param: str, text: str) -> RequestFailed:
    return RequestFailed.because("unsupported_parameter", f"{param}: {text}", param=param)


def _check_text_size(wire: ChatCompletionRequest, limit: int) -> None:
    total = sum(len(text) for message in wire.messages for text in _texts(message.content))
    if total > limit:
        text = f"messages hold {total} characters of text; at most {limit} are accepted. Shorten them."
        raise RequestFailed.because("request_too_large", text, param="messages")


def _check_consistency(wire: ChatCompletionRequest) -> None:
    if wire.stream_options is not None and not wire.stream:
        raise _bad("stream_options", "only allowed when stream is true.")
    if wire.top_logprobs and not wire.logprobs:
        raise _bad("top_logprobs", "only allowed when logprobs is true.")
    older, newer = wire.max_tokens, wire.max_completion_tokens
    if older is not None and newer is not None and older != newer:
        raise _bad("max_tokens", "differs from max_completion_tokens. Give only one of them.")
    longest = newer or older
    if longest is not None and wire.min_tokens is not None and wire.min_tokens > longest:
        raise _bad("min_tokens", "is above max_tokens.")


def _check_served(wire: ChatCompletionRequest) -> None:
    extra = wire.model_extra or {}
    for name, is_neutral in NOT_SERVED.items():
        value = extra[name] if name in extra else getattr(wire, name, None)
        if not is_neutral(value):
            raise _not_served(name, "this is not served yet. Leave it out.")
    for index, message in enumerate(wire.messages):
        if isinstance(message, ToolMessage):
            raise _not_served(f"messages[{index}].role", "tool messages are not served yet.")
        if isinstance(message, AssistantMessage):
            _check_assistant(message, f"messages[{index}]")


def _check_assistant(message: AssistantMessage, at: str) -> None:
    for name in ("tool_calls", "function_call", "audio"):
        if getattr(message, name):
            raise _not_served(f"{at}.{name}", "this is not served yet.")
    if message.content is None and message.refusal is None:
        text = f"{at}.content may be null only in a message with tool_calls."
        raise RequestFailed.because("invalid_value", text, param=f"{at}.content")


def _ignored(wire: ChatCompletionRequest, *, strict: bool) -> tuple[str, ...]:
    unknown = [name for name in wire.model_extra or {} if name not in NOT_SERVED]
    if unknown and strict:
        name = unknown[0][:64]
        raise RequestFailed.because("unknown_parameter", f"Unknown parameter: {name!r}.", param=name)
    without_effect = [
        name for name in wire.model_fields_set if name in NO_EFFECT and getattr(wire, name) is not None
    ]
    shown = [name if _PLAIN_NAME.fullmatch(name) else "?" for name in unknown[:32]]
    return tuple(sorted({*without_effect, *shown}))


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in cast(list[Any], content):
            yield getattr(part, "text", None) or getattr(part, "refusal", "")


def _to_chat(wire: ChatCompletionRequest) -> ChatRequest:
    return ChatRequest(
        model=wire.model,
        messages=tuple(_message(message) for message in wire.messages),
        sampling=_sampling(wire),
        stream=bool(wire.stream),
        retrieval=_retrieval(wire.retrieval),
        continue_conversation=wire.conversation_id is not None,
    )


def _message(message: Any) -> Message:
    role: Role = "system" if message.role == "developer" else message.role
    content = message.content if message.content is not None else message.refusal
    return Message(role=role, name=message.name, parts=tuple(Part(text=text) for text in _texts(content)))


def _sampling(wire: ChatCompletionRequest) -> Sampling:
    stop = wire.stop or ()
    return Sampling(
        max_tokens=wire.max_completion_tokens or wire.max_tokens,
        min_tokens=wire.min_tokens or 0,
        temperature=wire.temperature,
        top_p=wire.top_p,
        top_k=None if wire.top_k is None else max(wire.top_k, 0),
        min_p=wire.min_p,
        seed=wire.seed,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(wire.stop_token_ids or ()),
        ignore_eos=bool(wire.ignore_eos),
    )


def _retrieval(asked: bool | str | None) -> Literal["auto", "on", "off"]:
    if asked is None:
        return "auto"
    if isinstance(asked, bool):
        return "on" if asked else "off"
    return cast(Literal["auto", "on", "off"], asked)
