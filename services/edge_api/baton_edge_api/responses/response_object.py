"""The Response: what was asked, what was answered, and how it ended, as one JSON object. Pure.

Owns the form of the object and of its items. Knows nothing of events or of when it is told.
"""

from __future__ import annotations

from typing import Any, Literal

from baton_contracts.frames import FinishReason, Usage
from baton_contracts.openai_responses import ResponseRequest, ResponseSchemaFormat
from baton_contracts.records import ResponseStatus
from baton_edge_api.responses.ids import item_id
from baton_edge_api.responses.output import Output, OutputItem
from baton_edge_api.token_objects import rated_tokens

Json = dict[str, Any]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def status_of(reason: FinishReason) -> tuple[ResponseStatus, Json | None]:
    """The status of an answer that came to its end, and its details if it is incomplete."""
    if reason in _INCOMPLETE:
        return "incomplete", {"reason": _INCOMPLETE[reason]}
    return "completed", None


def error_object(status: int, message: str) -> Json:
    """Of an HTTP status, in the codes that OpenAI has; ours is in the error event and in the trace."""
    known = {429: "rate_limit_exceeded", 400: "invalid_prompt"}
    return {"code": known.get(status, "server_error"), "message": message}


def output_items(output: Output, key: str) -> list[Json]:
    return [item_object(item, key) for item in output.items]


def item_object(item: OutputItem, key: str, *, begins: bool = False) -> Json:
    """`begins`: as it stands in the event that adds it, with nothing in it."""
    status = "in_progress" if item.is_open or begins else "incomplete" if item.is_cut else "completed"
    shell: Json = {"id": item_id(item.kind, key, item.number, is_input=False), "type": item.kind}
    if item.kind == "function_call":
        arguments = "" if begins else item.text
        return shell | {
            "call_id": item.call_id,
            "name": item.name,
            "arguments": arguments,
            "status": status,
        }
    content = [] if begins else [part_object(item)]
    if item.kind == "reasoning":
        return shell | {"summary": [], "content": content, "status": status}
    return shell | {"role": "assistant", "status": status, "content": content}


def part_object(item: OutputItem, *, begins: bool = False) -> Json:
    text = "" if begins else item.text
    if item.kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    logprobs = [] if begins else rated_tokens(item.logprobs)
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def usage_object(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


class ResponseForm:
    """All of a Response that is settled before its answer begins."""

    def __init__(self, response_id: str, wire: ResponseRequest, created: int) -> None:
        self.response_id = response_id
        self._wire = wire
        self._created = created

    def response(
        self,
        status: ResponseStatus | Literal["queued", "in_progress"],
        model: str,
        *,
        output: list[Json] | None = None,
        usage: Usage | None = None,
        completed_at: int | None = None,
        error: Json | None = None,
        incomplete: Json | None = None,
        citations: tuple[str, ...] = (),
    ) -> Json:
        wire = self._wire
        state: Json = {
            "id": self.response_id,
            "object": "response",
            "created_at": self._created,
            "completed_at": completed_at,
            "status": status,
            "background": wire.background is True,
            "error": error,
            "incomplete_details": incomplete,
            "model": model,
            "output": output or [],
            "usage": usage_object(usage) if usage else None,
        }
        extras: Json = {"baton": {"citations": list(citations)}} if citations else {}
        return state | _asked(wire) | extras


def _asked(wire: ResponseRequest) -> Json:
    conversation = wire.conversation
    if conversation is not None:
        conversation = {"id": conversation if isinstance(conversation, str) else conversation.id}
    choice = wire.tool_choice
    if choice is None or isinstance(choice, str):
        tool_choice: object = choice or "auto"
    else:
        tool_choice = choice.model_dump()
    return {
        "instructions": wire.instructions,
        "max_output_tokens": wire.max_output_tokens,
        "max_tool_calls": wire.max_tool_calls,
        "parallel_tool_calls": wire.parallel_tool_calls is not False,
        "previous_response_id": wire.previous_response_id,
        "conversation": conversation,
        "prompt_cache_key": wire.prompt_cache_key,
        "prompt_cache_retention": wire.prompt_cache_retention,
        "reasoning": _reasoning(wire),
        "safety_identifier": wire.safety_identifier,
        "service_tier": "default",
        "store": wire.store is not False,
        "temperature": wire.temperature,
        "text": _text(wire),
        "tool_choice": tool_choice,
        "tools": [tool.model_dump() | {"strict": tool.strict is not False} for tool in wire.tools or ()],
        "top_logprobs": wire.top_logprobs or 0,
        "top_p": wire.top_p,
        "truncation": wire.truncation or "disabled",
        "user": wire.user,
        "metadata": wire.metadata or {},
    }


def _reasoning(wire: ResponseRequest) -> Json:
    asked = wire.reasoning
    return {"effort": asked.effort if asked else None, "summary": None}


def _text(wire: ResponseRequest) -> Json:
    asked = wire.text
    shape: Json = {"type": "text"}
    if asked and asked.format:
        shape = asked.format.model_dump(by_alias=True)
        if isinstance(asked.format, ResponseSchemaFormat):
            shape["strict"] = asked.format.strict is not False
    return {"format": shape, "verbosity": asked.verbosity if asked and asked.verbosity else "medium"}
