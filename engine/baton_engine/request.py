"""One request as its caller asks for it, and as the engine sees it. Owns the token ledger
(`num_computed_tokens` chasing `num_tokens`) and the time-stamps; knows no scheduler, no tensors and no text.
What is said of it is `deltas`'.
"""

from __future__ import annotations

import enum
import hashlib
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from baton_engine.deltas import Preemption, PrefillChunk, Timings, TokenLogprobs, Usage
from baton_engine.output_format import PLAIN, OutputFormat
from baton_engine.sampling_params import SamplingParams
from baton_engine.structured.matcher import Grammar, Matcher


class RequestState(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class EngineRequest:
    """What a caller submits: token ids, or messages for the chat template, never both.

    With sampling.n over 1 the answers share the prompt's blocks; each delta says which answer it is for.
    resume_token_ids are tokens that another engine already gave for this request: the answer goes on behind
    them, they count towards max_tokens, and neither their ids nor their text are sent again. resume_others
    holds those of the further answers, from index 1 on.
    A lower priority number is served earlier; waiting makes up for it (`queue_order.py`).
    Requests with different cache_salt never share KV blocks.
    output_format says which parts of the answer are told apart: thinking, tool calls.
    grammar is what `AsyncEngine.prepare` made of sampling.structured; None: it is made on submit.
    """

    request_id: str
    prompt_token_ids: Sequence[int] | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    sampling: SamplingParams = field(default_factory=SamplingParams)
    resume_token_ids: Sequence[int] = ()
    resume_others: Sequence[Sequence[int]] = ()
    cache_salt: str = ""
    priority: int = 0
    output_format: OutputFormat = PLAIN
    grammar: Grammar | None = None


def choice_seed(seed: int, index: int) -> int:
    """The seed of a request's further answers, from the request's own: the same everywhere."""
    packed = struct.pack("<qQ", seed, index)
    digest = hashlib.blake2b(packed, digest_size=8, person=b"baton.choice").digest()
    return int.from_bytes(digest, "little", signed=True)


@dataclass(eq=False)
class Request:
    """The rule everything follows from: a step computes tokens [num_computed_tokens, num_tokens) or a part of
    them; when the last one is computed, a token is sampled. Preemption sets num_computed_tokens back to 0.

    block_ids belongs to the KV cache, which alone adds and frees; state and arrival to the scheduler.
    draft_token_ids are guesses of what follows the last token, for the next step alone (see `speculation`).
    matcher follows the answer's tokens in the grammar, where there is one.
    index is 0 but for further answers to the prompt of `forked_from`, whose blocks they share while it has
    them.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    seed: int
    stop_token_ids: frozenset[int] = frozenset()
    end_token_ids: frozenset[int] = frozenset()
    resume_token_ids: tuple[int, ...] = ()
    resume_others: tuple[tuple[int, ...], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    grammar: Grammar | None = None
    cache_salt: str = ""
    priority: int = 0
    index: int = 0
    forked_from: Request | None = None
    output_format: OutputFormat = PLAIN

    state: RequestState = RequestState.WAITING
    arrival: int = 0
    token_ids: list[int] = field(default_factory=list[int])
    draft_token_ids: tuple[int, ...] = ()
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    num_reasoning_tokens: int = 0
    matcher: Matcher | None = field(init=False, default=None)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list["TokenLogprobs | None"])
    block_ids: list[int] = field(default_factory=list[int])
    block_hashes: list[bytes] = field(default_factory=list[bytes])

    queued_at: float = field(default_factory=time.time)
    scheduled_at: float | None = None
    first_token_at: float | None = None
    prefill_chunks: list[PrefillChunk] = field(default_factory=list[PrefillChunk])
    preemptions: list[Preemption] = field(default_factory=list[Preemption])

    def __post_init__(self) -> None:
        self.token_ids = [*self.prompt_token_ids, *self.resume_token_ids]
        self.matcher = self.grammar.matcher() if self.grammar is not None else None
        if self.sampling.prompt_logprobs is not None:
            self.prompt_logprobs.append(None)

    def fork(self, index: int) -> Request:
        """Another answer to the same prompt, in the same place of every queue."""
        return Request(
            request_id=self.request_id,
            prompt_token_ids=self.prompt_token_ids,
            sampling=replace(self.sampling, prompt_logprobs=None),
            max_tokens=self.max_tokens,
            seed=choice_seed(self.seed, index),
            stop_token_ids=self.stop_token_ids,
            end_token_ids=self.end_token_ids,
            resume_token_ids=self.resume_others[index - 1] if index <= len(self.resume_others) else (),
            bad_words=self.bad_words,
            grammar=self.grammar,
            cache_salt=self.cache_salt,
            priority=self.priority,
            index=index,
            forked_from=self,
            output_format=self.output_format,
            arrival=self.arrival,
            queued_at=self.queued_at,
        )

    @property
    def is_running(self) -> bool:
        return self.state is RequestState.RUNNING

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_scored_tokens(self) -> int:
        """Prompt tokens that need no logprobs (any more). Until it is all, the prefix cache is not read."""
        if self.sampling.prompt_logprobs is None:
            return len(self.prompt_token_ids)
        return len(self.prompt_logprobs)

    @property
    def num_remaining_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_answer_tokens(self) -> int:
        """All answer tokens, resumed ones too: what max_tokens and min_tokens count."""
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def num_completion_tokens(self) -> int:
        """The answer tokens that this engine made."""
        return self.num_answer_tokens - len(self.resume_token_ids)

    def answer_ends_with(self, token_ids: Sequence[int]) -> bool:
        length = len(token_ids)
        return length <= self.num_answer_tokens and self.token_ids[self.num_tokens - length :] == [*token_ids]

    @property
    def max_num_tokens(self) -> int:
        return len(self.prompt_token_ids) + self.max_tokens

    @property
    def usage(self) -> Usage:
        return Usage(
            self.num_prompt_tokens,
            self.num_cached_tokens,
            self.num_completion_tokens,
            self.num_reasoning_tokens,
        )

    def timings(self, finished_at: float) -> Timings:
        return Timings(
            queued_at=self.queued_at,
            scheduled_at=self.scheduled_at,
            first_token_at=self.first_token_at,
            finished_at=finished_at,
            prefill_chunks=tuple(self.prefill_chunks),
            num_preemptions=self.num_preemptions,
            preemptions=tuple(self.preemptions),
        )
