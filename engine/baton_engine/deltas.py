"""What the engine says of one request: a delta for each step that moved it, the last with figures and times.

Values only; knows no request and no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from baton_engine.output_format import ToolCallDelta

FinishReason = Literal["stop", "tool_calls", "length", "cancelled", "error"]


@dataclass(frozen=True)
class PrefillChunk:
    """One prompt chunk: when its step began (time.time() seconds), how long that took, how many tokens."""

    started_at: float
    seconds: float
    num_tokens: int


@dataclass(frozen=True)
class Preemption:
    """When a running request lost its blocks, and when it ran again (None: never). time.time() seconds."""

    at: float
    resumed_at: float | None = None


@dataclass(frozen=True)
class Timings:
    """time.time() seconds; None for what never happened."""

    queued_at: float
    scheduled_at: float | None
    first_token_at: float | None
    finished_at: float
    prefill_chunks: tuple[PrefillChunk, ...] = ()
    num_preemptions: int = 0
    preemptions: tuple[Preemption, ...] = ()


@dataclass(frozen=True)
class Usage:
    """cached_tokens: prompt tokens found in the prefix cache. completion_tokens leaves out resumed ones.
    reasoning_tokens: how many of the answer's tokens were thinking, resumed ones included."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class RequestFailure:
    """Why a request ended with finish_reason "error"."""

    code: str
    message: str


@dataclass(frozen=True)
class TokenLogprobs:
    """What the model itself thought of a token: natural logarithms of probabilities, before temperature,
    penalties and all other rules. top holds the most likely tokens, best first, as (token id, logprob).
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class RequestDelta:
    """What one step added to one request. The fields below finish_reason are set on the last delta only.

    token_ids and text need not match one to one: text may be held back for half characters and stop strings.
    stop_reason is the stop string or the stop token id that ended the answer (None for the end token).
    index tells the answers of one request apart, num_left counts those that go on after one has ended; a
    request that ends before its first token has one last delta for all of them, of index 0.
    text is the answer proper; reasoning and tool_calls are what output_format asked to be told apart from it.
    An answer that came to its own end with calls has the finish reason "tool_calls".
    logprobs, where asked for, has one entry for each of token_ids. prompt_logprobs comes with the first one:
    an entry for each prompt token, None for the first, which nothing comes before.
    """

    request_id: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    index: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: RequestFailure | None = None
    usage: Usage | None = None
    blocks_freed: int | None = None
    timings: Timings | None = None
    num_left: int = 0
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    @property
    def ends_request(self) -> bool:
        return self.finish_reason is not None and self.num_left == 0

    def followed_by(self, later: RequestDelta) -> RequestDelta:
        """One delta that says what two of the same answer say."""
        return replace(
            later,
            text=self.text + later.text,
            token_ids=self.token_ids + later.token_ids,
            logprobs=self.logprobs + later.logprobs,
            prompt_logprobs=self.prompt_logprobs or later.prompt_logprobs,
            reasoning=self.reasoning + later.reasoning,
            tool_calls=self.tool_calls + later.tool_calls,
        )


def one_for_each_answer(deltas: Sequence[RequestDelta]) -> list[RequestDelta]:
    """Joins the deltas of each answer, at the place of its last one: ends stay in their order."""
    joined: dict[tuple[str, int], RequestDelta] = {}
    for delta in deltas:
        answer = (delta.request_id, delta.index)
        earlier = joined.pop(answer, None)
        joined[answer] = delta if earlier is None else earlier.followed_by(delta)
    return list(joined.values())
