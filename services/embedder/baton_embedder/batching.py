"""Many questions, one model: texts of all pending questions share batches, in turn.

Owns the pending questions and the order of work. Steps are small, and take turns between the question with
the least left to do and the oldest one: a search waits for one step of a large ingest at most, and the ingest
gets every second step. Knows nothing of the bus or of the model inside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from baton_embedder.encoder import CUT, Encoder, Terms, Vector

log = logging.getLogger(__name__)

_SHORT = 32
"""Tokens; texts up to this length share a batch whatever the first one's length."""


@dataclass(frozen=True)
class Embedded:
    vectors: tuple[Vector, ...]
    prompt_tokens: int


@dataclass
class Question:
    """Texts as token ids, and the vectors found so far. `done` is set when there is one for each text."""

    token_ids: list[list[int]]
    done: asyncio.Future[list[Vector]]
    vectors: list[Vector] = field(default_factory=list[Vector])
    num_taken: int = 0

    @property
    def num_left(self) -> int:
        return len(self.token_ids) - self.num_taken

    @property
    def wants_more(self) -> bool:
        return not self.done.done() and self.num_left > 0

    @property
    def next_length(self) -> int:
        return len(self.token_ids[self.num_taken])

    def take(self) -> list[int]:
        self.num_taken += 1
        return self.token_ids[self.num_taken - 1]

    def add(self, vector: Vector) -> None:
        self.vectors.append(vector)
        if len(self.vectors) == len(self.token_ids) and not self.done.done():
            self.done.set_result(self.vectors)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def next_batch(
    pending: Sequence[Question], tokens_per_step: int, *, oldest_first: bool
) -> list[tuple[Question, list[int]]]:
    """One text from each question in turn, while (texts × longest) stays within the budget; at least one.

    The first text sets the length: others may be at most twice as long, so a short question is not padded to
    a page. Without `oldest_first` the question with the fewest texts left comes first.
    """
    waiting = [question for question in pending if question.wants_more]
    if not oldest_first:
        waiting.sort(key=lambda question: question.num_left)
    batch: list[tuple[Question, list[int]]] = []
    longest = most = 0
    while waiting:
        still: list[Question] = []
        for question in waiting:
            length = question.next_length
            most = most or max(2 * length, _SHORT)
            longest_then = max(longest, length)
            if batch and (length > most or (len(batch) + 1) * longest_then > tokens_per_step):
                continue
            longest = longest_then
            batch.append((question, question.take()))
            if question.wants_more:
                still.append(question)
        waiting = still
    return batch


class Batcher:
    def __init__(self, encoder: Encoder, executor: Executor, tokens_per_step: int) -> None:
        self._encoder = encoder
        self._executor = executor
        """One thread: the model's."""
        self._tokens_per_step = tokens_per_step
        self.pending: list[Question] = []
        self._work = asyncio.Event()

    async def embed(self, texts: Sequence[str], terms: Terms = CUT) -> Embedded:
        """Raises RequestFailed, as embed_ids does."""
        return await self._embed(await asyncio.to_thread(self._encoder.tokenize, texts, terms))

    async def embed_ids(self, token_ids: Sequence[Sequence[int]], terms: Terms = CUT) -> Embedded:
        """Ids of the model's own vocabulary, without marks of beginning and end."""
        return await self._embed(await asyncio.to_thread(self._encoder.frame, token_ids, terms))

    async def _embed(self, token_ids: list[list[int]]) -> Embedded:
        question = Question(token_ids, asyncio.get_running_loop().create_future())
        self.pending.append(question)
        self._work.set()
        vectors = await question.done
        return Embedded(tuple(vectors), sum(map(len, token_ids)))

    async def run(self) -> None:
        """For ever: one batch after the other."""
        while True:
            await self._work.wait()
            self._work.clear()
            oldest_first = False
            while batch := next_batch(self.pending, self._tokens_per_step, oldest_first=oldest_first):
                await self._step(batch)
                self.pending = [question for question in self.pending if question.wants_more]
                oldest_first = not oldest_first

    async def _step(self, batch: list[tuple[Question, list[int]]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            vectors = await loop.run_in_executor(
                self._executor, self._encoder.encode, [ids for _, ids in batch]
            )
        except Exception as error:  # one batch's failure is its questions' failure, not the service's
            log.exception("a batch of %d texts failed", len(batch))
            for question, _ in batch:
                question.fail(error)
            return
        for (question, _), vector in zip(batch, vectors, strict=True):
            question.add(vector)
