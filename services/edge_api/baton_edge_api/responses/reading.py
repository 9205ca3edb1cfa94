"""From the JSON of a /v1/responses request to a question, or to the one thing that is wrong with it.

Owns what is refused, and how it is said. Knows nothing of HTTP or of what is stored: a request that refers to
it is understood whole only by `chain`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from baton_common.errors import RequestFailed
from baton_contracts.openai_responses import LOGPROBS, NOTHING_TO_INCLUDE, ResponseRequest
from baton_contracts.prompt import ChatRequest
from baton_edge_api.refusals import bad_value, not_served
from baton_edge_api.responses.items import Item, Placed, is_cut_call, items_of
from baton_edge_api.responses.request_mapping import chat_request
from baton_edge_api.responses.response_question import ResponseQuestion
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.typed_body import typed
from baton_edge_api.validation import ignored_names

_NOT_SERVED = frozenset({"prompt", "context_management", "moderation"})
_NO_EFFECT = frozenset(
    {
        "max_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "user",
    }
)


def response_reader(settings: EdgeSettings) -> Callable[[object], ResponseQuestion]:
    strict, limit = settings.strict, settings.max_text_chars
    return lambda raw: read_response(raw, strict=strict, max_text_chars=limit)


def read_response(raw: object, *, strict: bool, max_text_chars: int) -> ResponseQuestion:
    """Raises RequestFailed, naming the parameter."""
    wire = typed(ResponseRequest, raw)
    _check_served(wire)
    _check_consistency(wire)
    items = tuple(items_of(wire.input))
    placed = [Placed(item) for item in items if item["type"] != "item_reference"]
    question = ResponseQuestion(
        chat=chat_request(wire, placed or [Placed(_NOTHING)]),
        conversation_id=_conversation_id(wire),
        ignored=_ignored(wire, strict=strict),
        wire=wire,
        items=items,
    )
    if not question.refers_to_stored:
        check_outputs(placed, items, question.conversation_id)
    check_size(question.chat, max_text_chars)
    return question


_NOTHING: Item = {"type": "message", "role": "user", "content": ""}
"""Stands for what is stored until that is known."""


def check_size(chat: ChatRequest, limit: int) -> None:
    total = chat.num_characters
    if total > limit:
        text = f"The request, with what it continues, holds {total} characters of text; {limit} are accepted."
        raise RequestFailed.because("request_too_large", text, param="input")


def check_outputs(placed: Sequence[Placed], items: Sequence[Item], conversation_id: str | None) -> None:
    """Each output answers a call that stands before it; those of a stored conversation can't be seen here."""
    if conversation_id is not None:
        return
    known: set[str] = set()
    places = {id(item): index for index, item in enumerate(items)}
    for each in placed:
        item = each.item
        if item["type"] == "function_call" and not is_cut_call(item):
            known.add(item["call_id"])
        elif item["type"] == "function_call_output" and item["call_id"] not in known and id(item) in places:
            param = f"input[{places[id(item)]}].call_id"
            raise bad_value(param, "no item before this one is a function call of this id.")


def _conversation_id(wire: ResponseRequest) -> str | None:
    named = wire.conversation
    return named if named is None or isinstance(named, str) else named.id


def _check_served(wire: ResponseRequest) -> None:
    extra = wire.model_extra or {}
    for name in sorted(_NOT_SERVED):
        if (extra[name] if name in extra else getattr(wire, name, None)) is not None:
            raise not_served(name, "this is not served. Leave it out.")
    for index, name in enumerate(wire.include or ()):
        if name != LOGPROBS and name not in NOTHING_TO_INCLUDE:
            raise not_served(f"include[{index}]", f"only {LOGPROBS} is served.")


def _check_consistency(wire: ResponseRequest) -> None:
    if wire.stream_options is not None and not wire.stream:
        raise bad_value("stream_options", "only allowed when stream is true.")
    if wire.top_logprobs and LOGPROBS not in (wire.include or ()):
        raise bad_value("top_logprobs", f"only allowed when include names {LOGPROBS}.")
    if wire.previous_response_id is not None and wire.conversation is not None:
        raise bad_value("previous_response_id", "not allowed together with conversation.")


def _ignored(wire: ResponseRequest, *, strict: bool) -> tuple[str, ...]:
    names = set(ignored_names(wire, strict=strict, no_effect=_NO_EFFECT, not_served=_NOT_SERVED))
    if wire.text and wire.text.verbosity:
        names.add("text.verbosity")
    if wire.reasoning and (wire.reasoning.summary or wire.reasoning.generate_summary):
        names.add("reasoning.summary")
    names.update(f"include.{name}" for name in NOTHING_TO_INCLUDE.intersection(wire.include or ()))
    return tuple(sorted(names))
