"""Tokens of one answer and of its prompt on their way out: they wait until what they spell is decided. Pure.

Owns the windows over the tokens themselves. Those over the text are the answer's; they come as places.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from baton_contracts.frames import Data, PromptPiece, SpelledToken, TokenLogprob
from baton_output_guardrails.stream_filter import StreamFilter
from baton_output_guardrails.token_filter import TokenFilter

Place = tuple[StreamFilter, int]
"""A filter, and how much it must have passed on."""


@dataclass(frozen=True)
class _Held:
    places: tuple[Place, ...]
    logprobs: tuple[TokenLogprob, ...]
    tokens: tuple[SpelledToken, ...]

    @property
    def is_free(self) -> bool:
        return all(part.num_passed >= place for part, place in self.places)


class AnswerTokens:
    def __init__(self, judged: StreamFilter) -> None:
        self._filter = TokenFilter(judged)
        self._held: deque[_Held] = deque()

    @property
    def judged(self) -> StreamFilter:
        return self._filter.filter

    def push(self, frame: Data, places: Sequence[Place]) -> None:
        """`places`: of the text that this frame brought, and of all before it."""
        self._filter.push(frame.tokens or frame.logprobs or ())
        own = (self.judged, self.judged.num_fed)
        self._held.append(_Held((*places, own), frame.logprobs or (), frame.tokens or ()))

    def flush(self) -> None:
        self._filter.flush()

    def free(self, *, at_end: bool = False) -> tuple[tuple[TokenLogprob, ...], tuple[SpelledToken, ...]]:
        """Those that may go out now."""
        free: list[_Held] = []
        while self._held and (at_end or self._held[0].is_free):
            free.append(self._held.popleft())
        logprobs = chain.from_iterable(held.logprobs for held in free)
        return tuple(logprobs), tuple(chain.from_iterable(held.tokens for held in free))


class PromptTokens:
    def __init__(self, judged: StreamFilter) -> None:
        self._filter = TokenFilter(judged)
        self._held: deque[tuple[int, PromptPiece]] = deque()
        self._num_told = 0
        self._over = False

    @property
    def judged(self) -> StreamFilter:
        return self._filter.filter

    def push(self, piece: PromptPiece) -> None:
        """An attempt that begins anew tells all again: what was heard already is dropped."""
        if self._over or piece.start < self._num_told:
            return
        self._num_told += len(piece.tokens)
        self._filter.push(piece.tokens)
        self._held.append((self.judged.num_fed, piece))

    def end(self) -> None:
        """The answer begins: there is no more of the prompt."""
        if not self._over:
            self._over = True
            self._filter.flush()

    def free(self) -> PromptPiece | None:
        return _joined(list(self._take()))

    def _take(self) -> Iterator[PromptPiece]:
        while self._held and (self._over or self._held[0][0] <= self.judged.num_passed):
            yield self._held.popleft()[1]


def _joined(pieces: Sequence[PromptPiece]) -> PromptPiece | None:
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    return PromptPiece(
        start=pieces[0].start,
        tokens=tuple(chain.from_iterable(piece.tokens for piece in pieces)),
        logprobs=None
        if pieces[0].logprobs is None
        else tuple(chain.from_iterable(piece.logprobs or () for piece in pieces)),
    )
