"""What has come of one answer: its parts, when they were sent, how it ended; and the figures made of that.

Knows nothing of how the answer came, in what form it is sent, or what is kept of it.
"""

from __future__ import annotations

from baton_contracts.frames import Data, End, FinishReason, Prologue, Usage
from baton_contracts.spans import AttributeValue
from baton_edge_api.answer_objects import AnswerParts
from baton_edge_api.metrics import Metrics


class AnswerSoFar:
    def __init__(self, num_answers: int, began: float) -> None:
        """`began`: of the loop's clock, in seconds."""
        self.answers = [AnswerParts() for _ in range(num_answers)]
        self._began = began
        self._times: list[float] = []
        self._num_tokens = 0
        self._num_pieces = 0
        self.prologue: Prologue | None = None
        self.end: End | None = None

    def add(self, frame: Data, told_at: float | None) -> None:
        """`told_at` is of the same clock as `began`, in seconds; None: the client was not told of it."""
        self._num_tokens += len(frame.token_ids)
        if frame.says_something and frame.index < len(self.answers):
            self._num_pieces += 1
            self.answers[frame.index].add(frame)
            if told_at is not None:
                self._times.append(told_at)

    @property
    def model(self) -> str:
        """The one that answers; empty before it began."""
        return self.prologue.model if self.prologue else ""

    @property
    def citations(self) -> tuple[str, ...]:
        return self.prologue.citations if self.prologue else ()

    @property
    def usage(self) -> Usage:
        return self.end.usage if self.end else Usage()

    @property
    def used(self) -> Usage:
        """As the engine counted. Of an end that was not heard: the prompt as its beginning said, and what was
        sent, in tokens or, where no ids are named, in pieces; so the gateway books it."""
        if self.end:
            return self.end.usage
        num_prompt_tokens = self.prologue.prompt_tokens if self.prologue else None
        sent = self._num_tokens or self._num_pieces
        return Usage(prompt_tokens=num_prompt_tokens or 0, completion_tokens=sent)

    @property
    def reasons(self) -> tuple[FinishReason, ...]:
        """One for each answer that was asked for."""
        given: tuple[FinishReason, ...] = self.end.reasons if self.end else ("cancelled",)
        reasons: list[FinishReason] = [*given[: len(self.answers)]]
        return tuple(reasons + reasons[-1:] * (len(self.answers) - len(reasons)))

    def describe(self, attributes: dict[str, AttributeValue]) -> None:
        """Puts the figures into the attributes of a span."""
        times, end = self._times, self.end
        attributes["chunks"] = len(times)
        if times:
            attributes["ttft_ms"] = round((times[0] - self._began) * 1000, 3)
        if end is None:
            return
        attributes["finish_reason"] = end.finish_reason
        attributes["prompt_tokens"] = end.usage.prompt_tokens
        attributes["completion_tokens"] = end.usage.completion_tokens
        attributes.setdefault("blocks_freed", end.blocks_freed)
        if times and end.usage.completion_tokens > 1:
            mean = (times[-1] - times[0]) / (end.usage.completion_tokens - 1)
            attributes["tpot_ms"] = round(mean * 1000, 3)

    def count(self, metrics: Metrics, ended: float) -> None:
        """Of an answer that came to its end."""
        if self.prologue and self.end:
            metrics.finished(
                self.prologue.model,
                self.end.finish_reason,
                self.end.usage,
                self._times,
                began=self._began,
                ended=ended,
            )
            if self.end.timings:
                metrics.engine_took(self.prologue.model, self.end.timings)
