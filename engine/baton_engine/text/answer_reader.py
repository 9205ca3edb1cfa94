"""From an answer's text to its parts: thinking, content, tool calls. One for each answer.

Owns the order: detokenised and cut at stop strings first, then reasoning, then calls in what is left. So a
stop string ends the answer wherever it appears, in the thinking and in arguments too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from baton_engine.output_format import OutputFormat, ToolCallDelta
from baton_engine.text.reasoning import ReasoningSplitter, Split
from baton_engine.text.tool_calls import (
    CallArguments,
    CallEnd,
    CallEvent,
    CallStart,
    ContentText,
    tool_call_parser,
)


@dataclass(frozen=True)
class AnswerPart:
    """What a piece of text added to the answer."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def then(self, later: AnswerPart) -> AnswerPart:
        calls = {call.index: call for call in self.tool_calls}
        for call in later.tool_calls:
            calls[call.index] = calls[call.index].then(call) if call.index in calls else call
        return AnswerPart(self.text + later.text, self.reasoning + later.reasoning, tuple(calls.values()))


class AnswerReader:
    def __init__(self, asked: OutputFormat, call_id_seed: str) -> None:
        """call_id_seed: unique to this answer; the ids of its calls follow from it."""
        self._reasoning = ReasoningSplitter(opened=asked.reasoning_opened) if asked.reasoning else None
        self._calls = (
            tool_call_parser(asked.tool_calls, asked.tool_names, _CallIds(call_id_seed).of)
            if asked.tool_calls
            else None
        )
        self._one_call = asked.one_call
        self.num_calls = 0
        self.is_over = False
        """One call was all that was wanted, and it is whole."""

    @property
    def is_thinking(self) -> bool:
        return self._reasoning is not None and self._reasoning.is_thinking

    def push(self, text: str) -> AnswerPart:
        split = self._reasoning.push(text) if self._reasoning else Split(content=text)
        return self._part(split, at_end=False)

    def finish(self) -> AnswerPart:
        """The text ends here: what was held back."""
        return self._part(self._reasoning.finish() if self._reasoning else Split(), at_end=True)

    def _part(self, split: Split, *, at_end: bool) -> AnswerPart:
        if self._calls is None:
            return AnswerPart(split.content, split.reasoning)
        events = self._calls.push(split.content)
        if at_end:
            events += self._calls.finish()
        if self._one_call:
            events = self._up_to_first_call(events)
        self.num_calls += sum(isinstance(event, CallStart) for event in events)
        text = "".join(event.text for event in events if isinstance(event, ContentText))
        return AnswerPart(text, split.reasoning, _deltas(events))

    def _up_to_first_call(self, events: list[CallEvent]) -> list[CallEvent]:
        if self.is_over:
            return []
        ends = next((place for place, event in enumerate(events, 1) if isinstance(event, CallEnd)), None)
        self.is_over = ends is not None
        return events[:ends]


class _CallIds:
    """Ids that one answer's calls have wherever and however often it is read."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def of(self, index: int) -> str:
        digest = hashlib.blake2b(f"{self._seed}\0{index}".encode(), digest_size=12, person=b"baton.call")
        return f"call_{digest.hexdigest()}"


def _deltas(events: list[CallEvent]) -> tuple[ToolCallDelta, ...]:
    """One for each call that moved: its events put together."""
    moved: dict[int, ToolCallDelta] = {}
    for event in events:
        match event:
            case ContentText():
                continue
            case CallStart(index, call_id, name):
                delta = ToolCallDelta(index, call_id, name)
            case CallArguments(index, text):
                delta = ToolCallDelta(index, arguments=text)
            case CallEnd(index):
                delta = ToolCallDelta(index, is_whole=True)
        moved[index] = moved[index].then(delta) if index in moved else delta
    return tuple(moved.values())
