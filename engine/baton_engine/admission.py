"""Who may come in. Owns the bounds of the waiting room and the ids in use; knows no queue order, no tensors.

The only part of the engine that several threads touch: a request is checked here, in the caller's thread,
so that a refusal never waits for a step. Whatever could fail for one request fails here, before it runs.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from baton_engine.config import EngineConfig
from baton_engine.errors import (
    ContextLengthExceeded,
    DuplicateRequest,
    InvalidParameter,
    KVCapacityExceeded,
    QueueFull,
    RequestRejected,
)
from baton_engine.output_format import OutputFormat
from baton_engine.request import EngineRequest, Request
from baton_engine.sampling_params import SamplingParams
from baton_engine.structured.compiler import GrammarCompiler
from baton_engine.text.reasoning import opens_thinking
from baton_engine.text_face import TextTokenizer

MAX_PRIORITY = 1_000_000


@dataclass(frozen=True)
class AdmissionLimits:
    """What the loaded model allows; vocab_size is the width of the logits."""

    vocab_size: int
    max_model_len: int
    block_size: int
    num_blocks: int
    max_waiting_requests: int
    max_waiting_tokens: int
    end_token_ids: frozenset[int]

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        vocab_size: int,
        max_model_len: int,
        num_blocks: int,
        end_token_ids: frozenset[int],
    ) -> AdmissionLimits:
        return cls(
            vocab_size=vocab_size,
            max_model_len=max_model_len,
            block_size=config.block_size,
            num_blocks=num_blocks,
            max_waiting_requests=config.max_waiting_requests,
            max_waiting_tokens=config.max_waiting_tokens,
            end_token_ids=end_token_ids,
        )


@dataclass(frozen=True)
class Admission:
    """queue_position is the number of requests that wait in front; waiting and running include none of it."""

    queue_position: int
    waiting: int
    running: int
    prompt_tokens: int


class WaitingRoom:
    """Counts what waits to be scheduled for the first time. Thread-safe."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._waiting: dict[str, int] = {}
        self._held: set[str] = set()

    @property
    def num_requests(self) -> int:
        return len(self._waiting)

    @property
    def num_tokens(self) -> int:
        with self._lock:
            return sum(self._waiting.values())

    def enter(self, request: Request) -> Admission:
        """Raises DuplicateRequest or QueueFull; otherwise the request is held until `leave`."""
        with self._lock:
            if request.request_id in self._held:
                raise DuplicateRequest(request.request_id)
            waiting, tokens = len(self._waiting), sum(self._waiting.values())
            if waiting >= self._limits.max_waiting_requests:
                raise QueueFull(waiting, self._limits.max_waiting_requests, "requests")
            if waiting and tokens + request.num_tokens > self._limits.max_waiting_tokens:
                raise QueueFull(tokens, self._limits.max_waiting_tokens, "tokens")
            running = len(self._held) - waiting
            self._held.add(request.request_id)
            self._waiting[request.request_id] = request.num_tokens
            return Admission(waiting, waiting, running, request.num_prompt_tokens)

    def scheduled(self, request_id: str) -> None:
        with self._lock:
            self._waiting.pop(request_id, None)

    def leave(self, request_id: str) -> None:
        with self._lock:
            self._waiting.pop(request_id, None)
            self._held.discard(request_id)


def build_request(
    asked: EngineRequest, limits: AdmissionLimits, tokenizer: TextTokenizer, grammars: GrammarCompiler
) -> Request:
    """Checks all that can be known before running; waits for the grammar if the request does not bring it.
    Raises RequestRejected.
    """
    if not asked.request_id:
        raise InvalidParameter("request_id", "request_id is empty.")
    if abs(asked.priority) > MAX_PRIORITY:
        raise InvalidParameter("priority", f"priority is {asked.priority}; at most ±{MAX_PRIORITY} is taken.")
    prompt = _prompt_of(asked, tokenizer)
    resume = _checked_ids("resume_token_ids", asked.resume_token_ids, limits.vocab_size)
    others = tuple(_checked_ids("resume_others", ids, limits.vocab_size) for ids in asked.resume_others)
    sampling = asked.sampling
    if len(others) >= sampling.n:
        text = f"resume_others continues {len(others)} further answers, but n is {sampling.n}."
        raise InvalidParameter("resume_others", text)
    if resume:  # whoever gave those tokens has told the prompt's, too
        sampling = replace(sampling, prompt_logprobs=None)
    stops = frozenset(_checked_ids("stop_token_ids", sampling.stop_token_ids, limits.vocab_size))
    prompt = _checked_ids("prompt", prompt, limits.vocab_size)
    if not prompt:
        raise InvalidParameter("prompt", "The prompt has no tokens; give at least one.")
    _check_rules(sampling, stops, limits)
    seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
    return Request(
        request_id=asked.request_id,
        prompt_token_ids=prompt,
        sampling=sampling,
        max_tokens=_max_tokens(len(prompt), sampling.max_tokens, limits),
        seed=seed,
        stop_token_ids=stops,
        end_token_ids=frozenset() if sampling.ignore_eos else limits.end_token_ids,
        resume_token_ids=resume,
        resume_others=others,
        bad_words=_spellings(sampling.bad_words, tokenizer, limits.vocab_size),
        grammar=asked.grammar or grammars.grammar(sampling.structured),
        cache_salt=asked.cache_salt,
        priority=asked.priority,
        output_format=_output_format(asked.output_format, prompt, tokenizer),
    )


def _output_format(asked: OutputFormat, prompt: Sequence[int], tokenizer: TextTokenizer) -> OutputFormat:
    return replace(asked, reasoning_opened=asked.reasoning and opens_thinking(prompt, tokenizer))


def _prompt_of(asked: EngineRequest, tokenizer: TextTokenizer) -> Sequence[int]:
    if (asked.prompt_token_ids is None) == (asked.messages is None):
        raise InvalidParameter("prompt", "Give either prompt token ids or messages, and not both.")
    if asked.prompt_token_ids is not None:
        return asked.prompt_token_ids
    assert asked.messages is not None
    if not asked.messages:
        raise InvalidParameter("messages", "messages is empty; give at least one.")
    try:
        return tokenizer.apply_chat_template(asked.messages, asked.tools, **asked.template_kwargs)
    except RequestRejected:
        raise
    except Exception as error:  # a template is the model's program: it may raise anything
        raise InvalidParameter("messages", f"The chat template failed on these messages: {error}") from error


def _check_rules(sampling: SamplingParams, stops: frozenset[int], limits: AdmissionLimits) -> None:
    _checked_ids("logit_bias", tuple(sampling.logit_bias), limits.vocab_size)
    allowed = _checked_ids("allowed_token_ids", sampling.allowed_token_ids or (), limits.vocab_size)
    if allowed and sampling.min_tokens:
        ends = stops if sampling.ignore_eos else stops | limits.end_token_ids
        if ends.issuperset(allowed):
            raise InvalidParameter(
                "allowed_token_ids",
                "allowed_token_ids holds nothing but ids that end the answer, and min_tokens forbids those.",
            )


def _spellings(
    words: Sequence[str], tokenizer: TextTokenizer, vocab_size: int
) -> tuple[tuple[int, ...], ...]:
    """Each word's tokens as it begins a text and as it follows a space, in order, each once.

    A tokenizer may have ids that the model has no logit for: what is spelled with them can't be said anyway.
    """
    spelled = (tuple(tokenizer.encode(before + word)) for word in words for before in ("", " "))
    sayable = (token_ids for token_ids in spelled if token_ids and max(token_ids) < vocab_size)
    return tuple(dict.fromkeys(sayable))


def _checked_ids(param: str, token_ids: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidParameter(param, f"{param} holds {token_id}; ids go from 0 to {vocab_size - 1}.")
    return tuple(token_ids)


def _max_tokens(prompt_tokens: int, asked: int | None, limits: AdmissionLimits) -> int:
    """The answer's bound, after the context check and the check that the KV pool could ever hold it.

    The last token is never fed back, so n tokens in all need room for n - 1.
    """
    wanted = asked if asked is not None else 1
    if prompt_tokens + wanted > limits.max_model_len:
        raise ContextLengthExceeded(prompt_tokens, wanted, limits.max_model_len)
    needed_blocks = -(-(prompt_tokens + wanted - 1) // limits.block_size)
    if needed_blocks > limits.num_blocks:
        raise KVCapacityExceeded(needed_blocks, limits.num_blocks)
    if asked is not None:
        return asked
    pool_tokens = limits.num_blocks * limits.block_size + 1
    return min(limits.max_model_len, pool_tokens) - prompt_tokens
