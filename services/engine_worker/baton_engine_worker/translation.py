"""Between the contract's words and the engine's: prompt, sampling, refusals, usage, timings. Pure."""

from __future__ import annotations

from typing import Any, cast

from baton_contracts import frames
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.handoffs import EngineWork
from baton_contracts.prompt import Prompt, Sampling
from baton_engine import (
    EngineError,
    InvalidParameter,
    RequestDelta,
    RequestFailure,
    RequestRejected,
    SamplingParams,
    Timings,
    Usage,
)

Defaults = dict[str, Any]
"""generation_config.json of the model."""

_CODES: dict[str, ErrorCode] = {
    "context_length_exceeded": "context_length_exceeded",
    "queue_full": "queue_full",
    "kv_capacity_exceeded": "kv_exhausted",
    "duplicate_request": "conflict",
}


def chat_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """For the chat template: the parts of a message joined. Templates know no developer: a system message."""
    return [
        {"role": "system" if message.role == "developer" else message.role, "content": message.text}
        | ({"name": message.name} if message.name else {})
        for message in prompt.messages
    ]


def prompt_token_ids(prompt: Prompt, tokenizer: Any) -> list[int]:
    """Raises RequestRejected if the model's template does not take these messages."""
    try:
        return tokenizer.apply_chat_template(chat_messages(prompt))
    except RequestRejected:
        raise
    except Exception as error:
        raise InvalidParameter("messages", f"The model's chat template failed on them: {error}") from error


def sampling_params(asked: Sampling, defaults: Defaults, max_tokens: int) -> SamplingParams:
    """The model's own defaults where the client said nothing. Raises InvalidParameter."""
    fallback = SamplingParams()
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=asked.min_tokens,
        temperature=_chosen(asked.temperature, defaults, "temperature", fallback.temperature),
        top_p=_chosen(asked.top_p, defaults, "top_p", fallback.top_p),
        top_k=int(_chosen(asked.top_k, defaults, "top_k", fallback.top_k)),
        min_p=_chosen(asked.min_p, defaults, "min_p", fallback.min_p),
        seed=asked.seed,
        stop=asked.stop,
        stop_token_ids=asked.stop_token_ids,
        ignore_eos=asked.ignore_eos,
    )


def _chosen(asked: float | None, defaults: Defaults, name: str, fallback: float) -> float:
    if asked is not None:
        return asked
    default = defaults.get(name)
    return fallback if default is None else default


def max_tokens(work: EngineWork, prompt_tokens: int, *, default: int, room: int) -> int:
    """What the client asked for, as it is: too much is the engine's to refuse. Otherwise `default`, or less
    where the `room` (tokens of prompt and answer together) is nearly used up."""
    if work.sampling.max_tokens is not None:
        return work.sampling.max_tokens
    return max(1, work.sampling.min_tokens, min(default, room - prompt_tokens))


def refusal(error: EngineError, instance: str) -> ErrorBody:
    """Why the engine did not take the request: for the router, and for a client whose fault it is."""
    if not isinstance(error, RequestRejected):
        message = f"{instance} takes no requests now: {error}"
        return ErrorBody(code="no_ready_replica", message=message, stop="engine_worker")
    code = _CODES.get(error.code, "invalid_value")
    return ErrorBody(code=code, message=error.message, param=error.param, stop="engine_worker")


def failure(error: RequestFailure | None) -> ErrorBody:
    """An error that came after the acceptance; another replica may do better."""
    what = f"{error.code}: {error.message}" if error else "no reason given"
    message = f"The engine failed on this request ({what})."
    return ErrorBody(code="stop_failed", message=message, stop="engine_worker")


def usage(counted: Usage | None) -> frames.Usage:
    if counted is None:
        return frames.Usage()
    return frames.Usage(
        prompt_tokens=counted.prompt_tokens,
        cached_tokens=counted.cached_tokens,
        completion_tokens=counted.completion_tokens,
    )


def timings(seen: Timings | None) -> frames.Timings | None:
    if seen is None:
        return None
    return frames.Timings(
        queued_at=seen.queued_at,
        scheduled_at=seen.scheduled_at,
        first_token_at=seen.first_token_at,
        finished_at=seen.finished_at,
    )


def finish_reason(delta: RequestDelta) -> frames.FinishReason:
    """Of a last delta that is not an error."""
    return cast("frames.FinishReason", delta.finish_reason)
