"""From the JSON of a chat completion to the relay's ChatRequest, or to the one thing that is wrong with it.

Owns what is refused, and how it is said. Knows nothing of HTTP, keys or NATS; what parameters mean is
chat_mapping's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set

from pydantic import BaseModel

from baton_common.errors import RequestFailed
from baton_contracts.openai_generation import GenerationRequest
from baton_contracts.openai_requests import AssistantMessage, ChatCompletionRequest
from baton_edge_api.chat_form import chat_form
from baton_edge_api.chat_mapping import chat_request
from baton_edge_api.chat_question import ChatQuestion
from baton_edge_api.generation_mapping import check_generation
from baton_edge_api.parameters import CHAT_NOT_SERVED, INSTEAD, NO_EFFECT, NOT_SERVED, Neutral
from baton_edge_api.refusals import bad_value, check_num_characters, not_served
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.tools import check_calls
from baton_edge_api.typed_body import typed

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def chat_reader(settings: EdgeSettings) -> Callable[[object], ChatQuestion]:
    strict, limit = settings.strict, settings.max_text_chars
    return lambda raw: read_chat(raw, strict=strict, max_text_chars=limit)


def read_chat(raw: object, *, strict: bool, max_text_chars: int) -> ChatQuestion:
    """Raises RequestFailed, naming the parameter."""
    wire = typed(ChatCompletionRequest, raw)
    _check_consistency(wire)
    check_served(wire, CHAT_NOT_SERVED)
    _check_messages(wire)
    check_calls(wire)
    chat = chat_request(wire)
    check_num_characters(chat.num_characters, max_text_chars, "tools" if chat.tools else "messages")
    return ChatQuestion(
        chat=chat,
        form=chat_form(wire),
        include_usage=bool(wire.stream_options and wire.stream_options.include_usage),
        conversation_id=wire.conversation_id,
        ignored=ignored_names(wire, strict=strict),
    )


def _check_consistency(wire: ChatCompletionRequest) -> None:
    if wire.top_logprobs and not wire.logprobs:
        raise bad_value("top_logprobs", "only allowed when logprobs is true.")
    older, newer = wire.max_tokens, wire.max_completion_tokens
    if older is not None and newer is not None and older != newer:
        raise bad_value("max_tokens", "differs from max_completion_tokens. Give only one of them.")
    check_generation(wire, newer or older)


def check_served(wire: GenerationRequest, not_served_here: Mapping[str, Neutral]) -> None:
    extra = wire.model_extra or {}
    for name, is_neutral in not_served_here.items():
        value = extra[name] if name in extra else getattr(wire, name, None)
        if not is_neutral(value):
            raise not_served(name, INSTEAD.get(name, "this is not served yet. Leave it out."))


def _check_messages(wire: ChatCompletionRequest) -> None:
    for index, message in enumerate(wire.messages):
        if isinstance(message, AssistantMessage):
            _check_assistant(message, f"messages[{index}]")


def _check_assistant(message: AssistantMessage, at: str) -> None:
    if message.audio:
        raise not_served(f"{at}.audio", "this is not served yet.")
    has_call = message.tool_calls or message.function_call
    if message.content is None and message.refusal is None and not has_call:
        text = f"{at}.content may be null only in a message with tool_calls."
        raise RequestFailed.because("invalid_value", text, param=f"{at}.content")


def ignored_names(
    wire: BaseModel,
    *,
    strict: bool,
    no_effect: Set[str] = NO_EFFECT,
    not_served: Set[str] = NOT_SERVED.keys(),
) -> tuple[str, ...]:
    """Parameters without effect, safe to stand in a header. Raises RequestFailed in strict mode."""
    unknown = [name for name in wire.model_extra or {} if name not in not_served | no_effect]
    if unknown and strict:
        name = unknown[0][:64]
        raise RequestFailed.because("unknown_parameter", f"Unknown parameter: {name!r}.", param=name)
    without_effect = [
        name for name in wire.model_fields_set if name in no_effect and getattr(wire, name) is not None
    ]
    shown = [name if _PLAIN_NAME.fullmatch(name) else "?" for name in unknown[:32]]
    return tuple(sorted({*without_effect, *shown}))
