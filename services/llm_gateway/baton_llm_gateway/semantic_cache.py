"""The semantic layer of the response cache: the answer to a question that was phrased otherwise.

Owns which questions were asked under one key (semantic_key.py), bounded in bytes, least recently used
first out. The answers stay in the response cache, which says how long they live: a question whose answer
is gone is dropped. The embedder is asked only when there is a question to compare with; its vectors are
kept beside the questions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from baton_llm_gateway.likeness import Vector, Vectors, similarity
from baton_llm_gateway.response_cache import CachedAnswer, ResponseCache
from baton_llm_gateway.semantic_key import Alike

Embed = Callable[[str, Sequence[str]], Awaitable[Vectors | None]]
"""Of a request's id and texts."""

MAX_PHRASINGS = 8
"""Questions kept under one key: the newest."""
PHRASING_BYTES = 15_000
"""A vector of 384 Python floats, mostly."""
KEY_BYTES = 512


@dataclass
class _Phrasing:
    """`vector` is None until it was compared once."""

    question: str
    answer_key: str
    model: str = ""
    vector: Vector | None = None


@dataclass(frozen=True)
class Similar:
    answer: CachedAnswer
    similarity: float


@dataclass(frozen=True)
class Verdict:
    """`why`, for the trace: hit, none_alike, embedder, or below (the threshold)."""

    why: str
    nearest: float | None = None
    hit: Similar | None = None


class SemanticCache:
    def __init__(self, answers: ResponseCache, embed: Embed, *, max_bytes: int) -> None:
        self._answers = answers
        self._embed = embed
        self._max_bytes = max_bytes
        self._asked: OrderedDict[str, list[_Phrasing]] = OrderedDict()
        self.num_bytes = 0

    async def find(self, request_id: str, alike: Alike, threshold: float, max_age: float | None) -> Verdict:
        living = self._living(alike.key, max_age)
        if not living:
            return Verdict("none_alike")
        vector = await self._compared(request_id, alike.question, living)
        if vector is None:
            return Verdict("embedder")
        model, ours = vector
        rated = [
            (similarity(ours, each.vector), each)
            for each in living
            if each.vector and each.model == model and len(each.vector) == len(ours)
        ]
        for nearest, phrasing in sorted(rated, key=lambda pair: -pair[0]):
            if not nearest >= threshold:  # what is no number is not near
                return Verdict("below", nearest)
            if answer := self._answers.get(phrasing.answer_key, max_age):
                return Verdict("hit", nearest, Similar(answer, nearest))
        return Verdict("none_alike")

    def remember(self, alike: Alike, answer_key: str) -> None:
        """The answer is in the response cache under `answer_key`."""
        asked = self._asked.setdefault(alike.key, [])
        if not asked:
            self.num_bytes += KEY_BYTES
        self._asked.move_to_end(alike.key)
        self._keep(asked, [each for each in asked if each.answer_key != answer_key][1 - MAX_PHRASINGS :])
        asked.append(_Phrasing(alike.question, answer_key))
        self.num_bytes += _bytes(asked[-1])
        while self.num_bytes > self._max_bytes:
            self._drop(next(iter(self._asked)))

    def _living(self, key: str, max_age: float | None) -> list[_Phrasing]:
        asked = self._asked.get(key)
        if asked is None:
            return []
        self._keep(asked, [each for each in asked if self._answers.holds(each.answer_key)])
        if not asked:
            self._drop(key)
            return []
        self._asked.move_to_end(key)
        return [each for each in asked if self._answers.holds(each.answer_key, max_age)]

    async def _compared(
        self, request_id: str, question: str, living: list[_Phrasing]
    ) -> tuple[str, Vector] | None:
        """Our vector and who made it; those of `living` are filled in where they were missing."""
        missing = [each for each in living if each.vector is None]
        reply = await self._embed(request_id, (question, *(each.question for each in missing)))
        if reply is None:
            return None
        for each, vector in zip(missing, reply.vectors[1:], strict=True):
            each.model, each.vector = reply.model, vector
        stale = [each for each in living if each.model != reply.model]
        for each in stale:  # of an embedder before this one: made anew the next time
            each.vector = None
        return reply.model, reply.vectors[0]

    def _keep(self, asked: list[_Phrasing], kept: list[_Phrasing]) -> None:
        self.num_bytes += sum(map(_bytes, kept)) - sum(map(_bytes, asked))
        asked[:] = kept

    def _drop(self, key: str) -> None:
        self.num_bytes -= sum(map(_bytes, self._asked.pop(key))) + KEY_BYTES


def _bytes(phrasing: _Phrasing) -> int:
    return PHRASING_BYTES + len(phrasing.question.encode())
