"""What the engine says of one request, in the contract's words: deltas as frames, sums at the end. Pure.

A request with several answers ends when the last of them does. If one fails, the request has failed: the
others are not worth finishing, since whoever tries again asks for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from baton_contracts.frames import (
    Data,
    End,
    FinishReason,
    PromptPiece,
    RatedToken,
    SpelledToken,
    TokenLogprob,
    ToolCallPiece,
    Usage,
)
from baton_contracts.prompt import Sampling
from baton_engine import RequestDelta, RequestFailure, TokenLogprobs
from baton_engine_worker import translation

LOWEST_LOGPROB = -9999.0
"""JSON knows no infinity."""
PROMPT_PIECE_TOKENS = 128
"""With twenty alternatives each they are some 200 kB, well inside a message."""


class AnswerFrames:
    def __init__(self, request_id: str, sender: str, tokenizer: Any, *, num_resumed: int = 0) -> None:
        """`num_resumed`: tokens of all answers that earlier attempts sent."""
        self._num_resumed = num_resumed
        self._request_id = request_id
        self._sender = sender
        self._tokenizer = tokenizer
        self._last: dict[int, RequestDelta] = {}
        """The last delta of each answer that has ended, by index."""
        self._with_token_ids = False
        self._prompt: Sequence[int] = ()
        """To be told before the answer's first token; empty: nobody asked, or it is told."""

    def tell_tokens(self, prompt_token_ids: Sequence[int], sampling: Sampling, *, resumed: bool) -> None:
        """As far as they were asked for; an answer that goes on has told its prompt already."""
        self._with_token_ids = sampling.return_token_ids
        if not resumed and (sampling.return_token_ids or sampling.prompt_logprobs is not None):
            self._prompt = prompt_token_ids

    def frames(self, delta: RequestDelta) -> Iterator[Data]:
        """None for a delta that adds nothing; before the first token what is told of the prompt."""
        if self._prompt and delta.token_ids:
            yield from self._prompt_frames(delta.prompt_logprobs)
            self._prompt = ()
        data = self.data(delta)
        if data is not None:
            yield data

    def _prompt_frames(self, scores: Sequence[TokenLogprobs | None] | None) -> Iterator[Data]:
        for start in range(0, len(self._prompt), PROMPT_PIECE_TOKENS):
            part = slice(start, start + PROMPT_PIECE_TOKENS)
            rated = tuple(entry and self._logprob(entry) for entry in scores[part]) if scores else None
            piece = PromptPiece(start=start, tokens=self._spelled(self._prompt[part]), logprobs=rated)
            yield Data(request_id=self._request_id, sender=self._sender, seq=0, prompt=piece)

    def _spelled(self, token_ids: Sequence[int]) -> tuple[SpelledToken, ...]:
        spell = self._tokenizer.token_bytes
        return tuple(
            SpelledToken(token_id=token_id, token_bytes=tuple(spell(token_id))) for token_id in token_ids
        )

    @property
    def has_failed(self) -> bool:
        return any(last.finish_reason == "error" for last in self._last.values())

    @property
    def failure(self) -> RequestFailure | None:
        return next((last.error for last in self._last.values() if last.error), None)

    def data(self, delta: RequestDelta) -> Data | None:
        """None for a delta that adds nothing. What a cancelled answer held back stays here: whoever goes on
        with it makes that text again from the tokens."""
        if delta.finish_reason is not None:
            self._last[delta.index] = delta
        if delta.finish_reason == "cancelled":
            return None
        reason = _early_end(delta)
        if not (delta.text or delta.token_ids or delta.reasoning or delta.tool_calls or reason):
            return None
        return Data(
            request_id=self._request_id,
            sender=self._sender,
            seq=0,
            index=delta.index,
            text=delta.text,
            token_ids=delta.token_ids,
            reasoning=delta.reasoning or None,
            tool_calls=_tool_calls(delta),
            logprobs=self._logprobs(delta),
            tokens=(self._spelled(delta.token_ids) or None) if self._with_token_ids else None,
            finish_reason=reason,
        )

    def end(self) -> End:
        reasons = self._reasons()
        last = max(self._last.values(), key=_finished_at)
        return End(
            request_id=self._request_id,
            sender=self._sender,
            seq=0,
            finish_reason=reasons[0],
            finish_reasons=reasons if len(reasons) > 1 else (),
            usage=self.usage(),
            blocks_freed=self.blocks_freed(),
            timings=translation.timings(last.timings),
        )

    def usage(self) -> Usage:
        """Of the whole request: the prompt counts once, the tokens of all answers and attempts count."""
        counted = [last.usage for _, last in sorted(self._last.items()) if last.usage]
        if not counted:
            return Usage(completion_tokens=self._num_resumed)
        own = sum(each.completion_tokens for each in counted)
        return translation.usage(counted[0]).model_copy(
            update={
                "completion_tokens": self._num_resumed + own,
                "reasoning_tokens": sum(each.reasoning_tokens for each in counted),
            }
        )

    @property
    def are_whole(self) -> bool:
        """The request has come to its end, not to a cancel or a failure."""
        reasons = [last.finish_reason for last in self._last.values()]
        ended = any(last.ends_request for last in self._last.values())
        return ended and not {"cancelled", "error"}.intersection(reasons)

    @property
    def first_reason(self) -> FinishReason:
        return self._reasons()[0]

    @property
    def num_own_tokens(self) -> int:
        """That this attempt added."""
        return sum(last.usage.completion_tokens for last in self._last.values() if last.usage)

    def blocks_freed(self) -> int:
        return sum(last.blocks_freed or 0 for last in self._last.values())

    def _reasons(self) -> tuple[FinishReason, ...]:
        """By index. A request of which anything was cancelled is cancelled."""
        ended = [last for _, last in sorted(self._last.items())]
        if any(last.finish_reason == "cancelled" for last in ended):
            return ("cancelled",)
        return tuple(cast("FinishReason", last.finish_reason) for last in ended)

    def _logprobs(self, delta: RequestDelta) -> tuple[TokenLogprob, ...] | None:
        """Without the token that ended the answer: it has no text."""
        entries = delta.logprobs
        if entries and delta.finish_reason in ("stop", "tool_calls") and delta.stop_reason is None:
            ends = entries[-1].token_id in self._tokenizer.eos_token_ids
            entries = entries[:-1] if ends else entries
        return tuple(map(self._logprob, entries)) or None

    def _logprob(self, entry: TokenLogprobs) -> TokenLogprob:
        rated = self._rated(entry.token_id, entry.logprob)
        top = tuple(self._rated(token_id, logprob) for token_id, logprob in entry.top)
        return TokenLogprob(
            text=rated.text,
            token_bytes=rated.token_bytes,
            logprob=rated.logprob,
            token_id=rated.token_id,
            top=top,
        )

    def _rated(self, token_id: int, logprob: float) -> RatedToken:
        raw: bytes = self._tokenizer.token_bytes(token_id)
        text = raw.decode("utf-8", "replace")
        rounded = max(logprob, LOWEST_LOGPROB)
        return RatedToken(text=text, token_bytes=tuple(raw), logprob=rounded, token_id=token_id)


def _tool_calls(delta: RequestDelta) -> tuple[ToolCallPiece, ...] | None:
    pieces = (
        ToolCallPiece(
            index=call.index,
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            is_whole=call.is_whole or None,
        )
        for call in delta.tool_calls
    )
    return tuple(pieces) or None


def _early_end(delta: RequestDelta) -> FinishReason | None:
    """Of an answer that has come to its end while others go on. A failed or cancelled one ends them all."""
    reason = delta.finish_reason
    return reason if delta.num_left and reason in ("stop", "tool_calls", "length") else None


def _finished_at(last: RequestDelta) -> float:
    return last.timings.finished_at if last.timings else 0.0
