"""The items of an answer as they come: thinking, text, calls, each begun, grown and closed once.

Owns their order and what each says so far. Knows nothing of ids, events or JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from baton_contracts.frames import Data, TokenLogprob, ToolCallPiece

Kind = Literal["reasoning", "message", "function_call"]


@dataclass
class OutputItem:
    kind: Kind
    number: int
    pieces: list[str] = field(default_factory=list[str])
    """Of its thinking, its text or its arguments."""
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    call_id: str = ""
    name: str = ""
    is_open: bool = True
    is_cut: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Change(NamedTuple):
    step: Literal["begun", "grown", "closed"]
    item: OutputItem
    piece: str = ""
    logprobs: Sequence[TokenLogprob] = ()


class Output:
    def __init__(self) -> None:
        self.items: list[OutputItem] = []
        self._telling: OutputItem | None = None
        """The thinking or the text that is under way."""
        self._calls: dict[int, OutputItem] = {}

    def take(self, frame: Data) -> list[Change]:
        """What one frame changes, in order. Logprobs go with the text; those of thinking and of calls are not
        told."""
        changes: list[Change] = []
        if frame.reasoning:
            self._tell("reasoning", frame.reasoning, (), changes)
        if frame.text:
            self._tell("message", frame.text, frame.logprobs or (), changes)
        elif frame.logprobs and self._telling and self._telling.kind == "message" and not frame.tool_calls:
            self._grow(self._telling, "", frame.logprobs, changes)
        for piece in frame.tool_calls or ():
            self._add_call(piece, changes)
        return changes

    def close(self, *, is_cut: bool) -> list[Change]:
        """The answer is over. `is_cut`: what was under way is not whole."""
        changes: list[Change] = []
        for item in self.items:
            if item.is_open:
                item.is_cut = is_cut
                self._close(item, changes)
        self._telling = None
        return changes

    def add_empty_message(self) -> list[Change]:
        """Of an answer that says nothing at all."""
        changes: list[Change] = []
        self._close(self._begin("message", changes), changes)
        return changes

    def _tell(
        self,
        kind: Literal["reasoning", "message"],
        text: str,
        logprobs: Sequence[TokenLogprob],
        changes: list[Change],
    ) -> None:
        item = self._telling
        if item is None or item.kind != kind:
            self._close_telling(changes)
            item = self._telling = self._begin(kind, changes)
        self._grow(item, text, logprobs, changes)

    def _add_call(self, piece: ToolCallPiece, changes: list[Change]) -> None:
        item = self._calls.get(piece.index)
        if item is None:
            self._close_telling(changes)
            item = OutputItem(
                "function_call", len(self.items), call_id=piece.call_id or "", name=piece.name or ""
            )
            self._calls[piece.index] = item
            self._added(item, changes)
        if piece.arguments:
            self._grow(item, piece.arguments, (), changes)
        if piece.is_whole and item.is_open:
            self._close(item, changes)

    def _begin(self, kind: Kind, changes: list[Change]) -> OutputItem:
        item = OutputItem(kind, len(self.items))
        self._added(item, changes)
        return item

    def _added(self, item: OutputItem, changes: list[Change]) -> None:
        self.items.append(item)
        changes.append(Change("begun", item))

    @staticmethod
    def _grow(item: OutputItem, piece: str, logprobs: Sequence[TokenLogprob], changes: list[Change]) -> None:
        item.pieces.append(piece)
        item.logprobs.extend(logprobs)
        changes.append(Change("grown", item, piece, logprobs))

    def _close_telling(self, changes: list[Change]) -> None:
        if self._telling:
            self._close(self._telling, changes)
            self._telling = None

    @staticmethod
    def _close(item: OutputItem, changes: list[Change]) -> None:
        item.is_open = False
        changes.append(Change("closed", item))
