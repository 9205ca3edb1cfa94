"""All answers of one request on their way out, by index: mostly one. Owns their filters and source lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from baton_contracts.frames import Data, FinishReason, Prologue
from baton_output_guardrails.answer_filter import AnswerFilter, FilterRules, Passed
from baton_output_guardrails.sources import SourceLine

_NO_PROSE = ("tool_calls", "content_filter")


class Answers:
    def __init__(self, rules: FilterRules, *, name_sources: bool = True) -> None:
        self._rules = rules
        self._name_sources = name_sources
        self._citations: Sequence[str] = ()
        self._num_answers = 1
        self._filters: dict[int, AnswerFilter] = {}
        self._sources: dict[int, SourceLine] = {}
        self._told: set[int] = set()
        """Those whose end has gone out before the end of all."""

    def begin(self, prologue: Prologue) -> None:
        self._num_answers = prologue.num_answers
        if self._name_sources:
            self._citations = prologue.citations

    @property
    def blocked(self) -> bool:
        """Nothing more will come out of any of them."""
        return len(self._filters) >= self._num_answers and all(one.blocked for one in self._filters.values())

    @property
    def any_blocked(self) -> bool:
        return any(one.blocked for one in self._filters.values())

    @property
    def hits(self) -> tuple[str, ...]:
        return tuple(hit for one in self._filters.values() for hit in one.hits)

    @property
    def held_chars_max(self) -> int:
        return max((one.held_chars_max for one in self._filters.values()), default=0)

    def push(self, frame: Data) -> Passed:
        if frame.text and self._citations:
            self._source_line(frame.index).see(frame.text)
        return self._filter(frame.index).push(frame)

    def early_end(self, frame: Data) -> tuple[Passed, FinishReason] | None:
        """If the frame's answer is over while others go on: what was held back of it, and why it ended. Once.
        The last one's end is told with the end of all."""
        index, answer = frame.index, self._filter(frame.index)
        reason: FinishReason | None = "content_filter" if answer.blocked else frame.finish_reason
        if reason is None or index in self._told or len(self._told) + 1 >= self._num_answers:
            return None
        self._told.add(index)
        return self._finish(index, reason), "content_filter" if answer.blocked else reason

    def finish(self, reasons: Sequence[FinishReason]) -> Iterator[tuple[int, Passed]]:
        """What was held back of each, by index."""
        for index, reason in enumerate(reasons):
            passed = self._finish(index, reason)
            if passed:
                yield index, passed

    def reasons(self, reasons: Sequence[FinishReason]) -> tuple[FinishReason, ...]:
        """Why each ended, once all is out."""
        return tuple(
            "content_filter" if self._filter(index).blocked else reason
            for index, reason in enumerate(reasons)
        )

    def _finish(self, index: int, reason: FinishReason) -> Passed:
        more = "" if reason in _NO_PROSE else self._source_line(index).line()
        return self._filter(index).finish(more)

    def _filter(self, index: int) -> AnswerFilter:
        found = self._filters.get(index)
        if found is None:
            found = self._filters[index] = AnswerFilter(self._rules)
        return found

    def _source_line(self, index: int) -> SourceLine:
        return self._sources.setdefault(index, SourceLine(self._citations))
