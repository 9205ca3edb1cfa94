"""How tokens are chosen and when an answer ends: a chat or completion request in the relay's own words."""

from __future__ import annotations

import re

from baton_contracts.openai_generation import GenerationRequest
from baton_contracts.prompt import Sampling
from baton_edge_api.formats import structured_output
from baton_edge_api.refusals import bad_value

_TOKEN_ID = re.compile(r"[0-9]{1,9}")


def sampling_of(wire: GenerationRequest, *, max_tokens: int | None, logprobs: int | None) -> Sampling:
    """Raises RequestFailed, naming the parameter."""
    if wire.truncate_prompt_tokens == 0:
        raise bad_value("truncate_prompt_tokens", "must be -1, or at least 1.")
    stop = wire.stop or ()
    allowed = wire.allowed_token_ids
    num_kept = wire.n or 1
    num_written = wire.best_of or num_kept
    if num_written > num_kept and logprobs is None:
        logprobs = 0  # the likeliest are chosen by them
    return Sampling(
        max_tokens=max_tokens,
        min_tokens=wire.min_tokens or 0,
        temperature=wire.temperature,
        top_p=wire.top_p,
        top_k=None if wire.top_k is None else max(wire.top_k, 0),
        min_p=wire.min_p,
        seed=wire.seed,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(wire.stop_token_ids or ()),
        ignore_eos=bool(wire.ignore_eos),
        include_stop_str_in_output=bool(wire.include_stop_str_in_output),
        skip_special_tokens=wire.skip_special_tokens is not False,
        presence_penalty=wire.presence_penalty or 0.0,
        frequency_penalty=wire.frequency_penalty or 0.0,
        repetition_penalty=wire.repetition_penalty,
        logit_bias=_logit_bias(wire.logit_bias or {}),
        bad_words=tuple(wire.bad_words or ()),
        allowed_token_ids=None if allowed is None else tuple(allowed),
        n=num_written,
        logprobs=logprobs,
        prompt_logprobs=wire.prompt_logprobs,
        return_token_ids=bool(wire.return_token_ids),
        truncate_prompt_tokens=wire.truncate_prompt_tokens,
        structured=structured_output(wire),
    )


def _logit_bias(asked: dict[str, float]) -> dict[int, float]:
    if not all(_TOKEN_ID.fullmatch(token_id) for token_id in asked):
        raise bad_value("logit_bias", "its keys must be token ids: whole numbers from 0 on, as strings.")
    return {int(token_id): bias for token_id, bias in asked.items()}


def check_generation(wire: GenerationRequest, max_tokens: int | None) -> None:
    """What contradicts itself. Raises RequestFailed."""
    if wire.stream_options is not None and not wire.stream:
        raise bad_value("stream_options", "only allowed when stream is true.")
    if max_tokens is not None and wire.min_tokens is not None and wire.min_tokens > max_tokens:
        raise bad_value("min_tokens", "is above max_tokens.")
    if wire.best_of is not None and wire.best_of < (wire.n or 1):
        raise bad_value("best_of", "is below n.")
    if wire.stream and wire.best_of is not None and wire.best_of > (wire.n or 1):
        raise bad_value("best_of", "can't be above n in a stream: all are read before one is chosen.")
    if wire.stream and wire.prompt_logprobs is not None:
        raise bad_value("prompt_logprobs", "not available in a stream.")
