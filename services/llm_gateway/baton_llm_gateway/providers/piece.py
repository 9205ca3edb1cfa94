"""What was added to one answer of a server, in parts that each fit a frame, which is a message on the bus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from baton_contracts.frames import TokenLogprob, ToolCallPiece

MOST_CHARACTERS = 128 * 1024
"""In one frame: JSON may make six bytes of one."""
MOST_OF_NAME = 128
"""Characters, and as many of a call's id."""
MOST_RATED = 100
"""Tokens in one frame, each with its alternatives."""


@dataclass
class Piece:
    """What was added to one answer."""

    index: int
    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, ToolCallPiece] = field(default_factory=dict[int, ToolCallPiece])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])

    def in_parts(self) -> Iterator[Piece]:
        """Each small enough for a frame: a whole answer comes in one piece, and may be long."""
        if self._fits_a_frame():
            yield self
            return
        for part in _parts("".join(self.reasoning)):
            yield Piece(self.index, reasoning=[part])
        for part in _parts("".join(self.texts)):
            yield Piece(self.index, texts=[part])
        for call in self.calls.values():
            for piece in _parts_of_call(call):
                yield Piece(self.index, calls={call.index: piece})
        for start in range(0, len(self.logprobs), MOST_RATED):
            yield Piece(self.index, logprobs=self.logprobs[start : start + MOST_RATED])

    def _fits_a_frame(self) -> bool:
        calls = sum(len(call.arguments) + 2 * MOST_OF_NAME for call in self.calls.values())
        num_characters = sum(map(len, self.texts)) + sum(map(len, self.reasoning)) + calls
        return num_characters <= MOST_CHARACTERS and len(self.logprobs) <= MOST_RATED


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), MOST_CHARACTERS):
        yield text[start : start + MOST_CHARACTERS]


def _parts_of_call(call: ToolCallPiece) -> Iterator[ToolCallPiece]:
    """Its name comes with the first, that it is whole with the last."""
    first, *others = list(_parts(call.arguments)) or [""]
    is_whole = None if others else call.is_whole
    yield call.model_copy(update={"arguments": first, "is_whole": is_whole})
    for place, part in enumerate(others, start=1):
        is_whole = call.is_whole if place == len(others) else None
        yield ToolCallPiece(index=call.index, arguments=part, is_whole=is_whole)
