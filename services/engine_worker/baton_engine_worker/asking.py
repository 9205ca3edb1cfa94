"""From a handoff's work to what the engine is asked: sampling, bounds, the answer's form. Pure.

How its prompt becomes tokens is prompting's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from baton_contracts.handoffs import EngineWork
from baton_contracts.prompt import Sampling
from baton_engine import (
    EngineRequest,
    InvalidParameter,
    OutputFormat,
    SamplingParams,
    StructuredOutput,
)
from baton_engine.text.reasoning import CLOSING, has_closed_thinking, opens_thinking
from baton_engine_worker.dialect import Dialect
from baton_engine_worker.engine_face import Engine
from baton_engine_worker.structures import leaves_no_room, structure_of

Defaults = dict[str, Any]
"""generation_config.json of the model."""


def engine_request(
    work: EngineWork,
    prompt_token_ids: list[int],
    engine: Engine,
    dialect: Dialect,
    *,
    request_id: str,
    default_max_tokens: int,
    room: int,
    seed: int | None = None,
    ease: bool = False,
) -> EngineRequest:
    """`room`: tokens that one request can have in all. `seed`: where the client gave none. `ease`: schemas of
    calls that may be made are not kept to, but strict ones. Raises InvalidParameter."""
    if work.adapter:
        raise InvalidParameter("model", f"Adapter {work.adapter!r} is not here: this engine loads none.")
    prompt = truncated(prompt_token_ids, work.sampling, room)
    bound = max_tokens(work, len(prompt), default=default_max_tokens, room=room)
    held = leaves_no_room(work)
    thinks = dialect.thinks and work.prompt.rendering != "raw"
    opened = thinks and opens_thinking(prompt, engine.tokenizer)
    structure = structure_of(
        work,
        dialect,
        after=CLOSING if held and opened else "",
        calls_after=CLOSING if opened else None if thinks and not _thought(prompt, engine) else "",
        ease=ease,
    )
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling=sampling_params(work.sampling, engine.generation_defaults, bound, structure, seed),
        resume_token_ids=work.resume_token_ids,
        resume_others=work.resume_others,
        cache_salt=work.cache_salt,
        priority=work.priority,
        output_format=output_format(work, dialect, only_structure=held and not opened),
    )


def seed_of_run(request_id: str, run_id: str) -> int:
    """For an answer that is drawn without a seed of its client's: unlike any other's, and the same on every
    replica, so that it goes on elsewhere as it would have here."""
    digest = hashlib.blake2b(f"{request_id}/{run_id}".encode(), digest_size=8, person=b"baton.run").digest()
    return int.from_bytes(digest, "little") >> 1


def _thought(prompt: Sequence[int], engine: Engine) -> bool:
    return has_closed_thinking(prompt, engine.tokenizer)


def output_format(work: EngineWork, dialect: Dialect, *, only_structure: bool = False) -> OutputFormat:
    """What is told apart in the answer: thinking, if the model does, and calls of the offered tools. Behind a
    raw prompt all is text, whatever it looks like."""
    names = frozenset(tool.name for tool in work.prompt.tools)
    if work.prompt.rendering == "raw":
        return OutputFormat()
    thinks = dialect.thinks and not only_structure
    if not names or work.tool_choice.mode == "none":
        return OutputFormat(reasoning=thinks)
    return OutputFormat(
        reasoning=thinks,
        tool_calls=dialect.tool_format,
        tool_names=names,
        one_call=not work.tool_choice.parallel,
    )


def truncated(token_ids: list[int], sampling: Sampling, room: int) -> list[int]:
    """The last tokens of the prompt, if the client asked that it be cut."""
    keep = sampling.truncate_prompt_tokens
    if keep is None:
        return token_ids
    if keep == -1:
        keep = max(1, room - max(sampling.max_tokens or 1, sampling.min_tokens))
    return token_ids[-keep:]


def sampling_params(
    asked: Sampling,
    defaults: Defaults,
    max_tokens: int,
    structured: StructuredOutput | None = None,
    seed: int | None = None,
) -> SamplingParams:
    """The model's own defaults, and `seed`, where the client said nothing. Raises InvalidParameter."""
    fallback = SamplingParams()
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=asked.min_tokens,
        temperature=_chosen(asked.temperature, defaults, "temperature", fallback.temperature),
        top_p=_chosen(asked.top_p, defaults, "top_p", fallback.top_p),
        top_k=int(_chosen(asked.top_k, defaults, "top_k", fallback.top_k)),
        min_p=_chosen(asked.min_p, defaults, "min_p", fallback.min_p),
        seed=seed if asked.seed is None else asked.seed,
        stop=asked.stop,
        stop_token_ids=asked.stop_token_ids,
        ignore_eos=asked.ignore_eos,
        include_stop_str_in_output=asked.include_stop_str_in_output,
        skip_special_tokens=asked.skip_special_tokens,
        allowed_token_ids=asked.allowed_token_ids,
        bad_words=asked.bad_words,
        logit_bias=asked.logit_bias,
        repetition_penalty=_chosen(
            asked.repetition_penalty, defaults, "repetition_penalty", fallback.repetition_penalty
        ),
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        logprobs=asked.logprobs,
        prompt_logprobs=asked.prompt_logprobs,
        n=asked.n,
        structured=structured,
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
