"""The filter of one answer of a request: text, thinking and each call's arguments, each on its own.

Owns which parts there are. What is told of tokens (log-probabilities, ids) stays with the text: while that is
held it is, and what is banned takes it along. Knows no order of frames and no bus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from baton_contracts.frames import Data, PromptPiece, SpelledToken, TokenLogprob, ToolCallPiece
from baton_output_guardrails.argument_filter import ArgumentFilter
from baton_output_guardrails.deny import DenyRules
from baton_output_guardrails.stream_filter import StreamFilter
from baton_output_guardrails.told_tokens import AnswerTokens, PromptTokens


class Passed(NamedTuple):
    """What may go out now, by the names of a frame's fields."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallPiece, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    tokens: tuple[SpelledToken, ...] = ()
    prompt: PromptPiece | None = None

    def __bool__(self) -> bool:
        return any(self)


@dataclass(frozen=True)
class FilterRules:
    """What the filters of all answers of a request share."""

    values: Mapping[str, str]
    deny: DenyRules
    monitor: bool = False

    def text(self) -> StreamFilter:
        return StreamFilter(self.values, self.deny, monitor=self.monitor)

    def name(self) -> StreamFilter:
        """Of a function: judged, never restored."""
        return StreamFilter({}, self.deny, monitor=self.monitor)

    def arguments(self) -> ArgumentFilter:
        return ArgumentFilter(self.values, self.deny, monitor=self.monitor)


class AnswerFilter:
    """However its text is cut, the same text comes out."""

    def __init__(self, rules: FilterRules) -> None:
        self._rules = rules
        self._text = rules.text()
        self._reasoning = rules.text()
        self._parts = [self._text, self._reasoning]
        """All there are, with those of names, arguments and told tokens."""
        self._names: list[StreamFilter] = []
        self._calls: dict[int, ArgumentFilter] = {}
        self._tokens: AnswerTokens | None = None
        self._prompt: PromptTokens | None = None
        self._finished = False
        self.blocked = False
        """Something banned was found."""

    @property
    def hits(self) -> tuple[str, ...]:
        return tuple(hit for part in self._parts for hit in part.hits)

    @property
    def held_chars_max(self) -> int:
        return max(part.held_chars_max for part in self._parts)

    def push(self, frame: Data) -> Passed:
        """Nothing more comes out of an answer in which something banned was found."""
        if self.blocked or self._finished:
            return Passed()
        text = self._text.push(frame.text)
        reasoning = self._reasoning.push(frame.reasoning) if frame.reasoning else ""
        calls = tuple(self._call(piece) for piece in frame.tool_calls or ())
        self._take_tokens(frame)
        self.blocked = any(part.blocked for part in self._parts)
        if not self.blocked:
            return self._with_tokens(Passed(text, reasoning, calls))
        is_called_so = any(name.blocked for name in self._names)
        return Passed(text, reasoning, () if is_called_so else calls)

    def finish(self, more_text: str = "") -> Passed:
        """The answer is over: what was held back, unless it is banned. `more_text` goes behind it."""
        if self.blocked or self._finished:
            return Passed()
        self._finished = True
        text = self._text.push(more_text) + self._text.flush()
        reasoning = self._reasoning.flush()
        rests = ((index, part.flush()) for index, part in self._calls.items())
        calls = tuple(ToolCallPiece(index=index, arguments=rest) for index, rest in rests if rest)
        if self._tokens:
            self._tokens.flush()
        if self._prompt:
            self._prompt.end()
        self.blocked = any(part.blocked for part in self._parts)
        passed = Passed(text, reasoning, calls)
        return passed if self.blocked else self._with_tokens(passed)

    def _call(self, piece: ToolCallPiece) -> ToolCallPiece:
        if piece.name is not None:
            judged = self._rules.name()
            judged.push(piece.name)
            judged.flush()
            self._names.append(judged)
            self._parts.append(judged)
        part = self._calls.get(piece.index) or self._new_call(piece.index)
        arguments = part.push(piece.arguments)
        if piece.is_whole:
            arguments += part.flush()
        return piece.model_copy(update={"arguments": arguments})

    def _new_call(self, index: int) -> ArgumentFilter:
        part = self._calls[index] = self._rules.arguments()
        self._parts.append(part.filter)
        return part

    def _places(self) -> tuple[tuple[StreamFilter, int], ...]:
        texts = ((part, part.num_fed) for part in (self._text, self._reasoning))
        calls = ((part.filter, part.num_fed) for part in self._calls.values())
        return (*texts, *calls)

    def _take_tokens(self, frame: Data) -> None:
        if frame.prompt:
            if self._prompt is None:
                self._prompt = PromptTokens(self._rules.name())
                self._parts.append(self._prompt.judged)
            self._prompt.push(frame.prompt)
        elif self._prompt:
            self._prompt.end()
        if frame.logprobs or frame.tokens:
            if self._tokens is None:
                self._tokens = AnswerTokens(self._rules.name())
                self._parts.append(self._tokens.judged)
            self._tokens.push(frame, self._places())

    def _with_tokens(self, passed: Passed) -> Passed:
        """With those that may go out now."""
        if self._tokens is None and self._prompt is None:
            return passed
        logprobs, tokens = self._tokens.free(at_end=self._finished) if self._tokens else ((), ())
        prompt = self._prompt.free() if self._prompt else None
        return passed._replace(logprobs=logprobs, tokens=tokens, prompt=prompt)
