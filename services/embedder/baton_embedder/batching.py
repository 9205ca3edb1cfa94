"""Many questions, one model: texts of all pending questions share batches, in turn.

Owns the pending questions and the order of work. A long question can't hold up a short one for more than one
step, since each step takes texts from every question in turn. Knows nothing of the bus or the model inside.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from baton_embedder.encoder import Encoder, Vector

log = logging.getLogger(__name__)


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
    def wants_more(self) -> bool:
        return not self.done.done() and self.num_taken < len(self.token_ids)

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


def next_batch(pending: deque[Question], tokens_per_step: int) -> list[tuple[Question, list[int]]]:
    """One text from each question in turn while (texts × longest) stays within the budget; at least one text.
    Questions that want no more are dropped from `pending`."""
    batch: list[tuple[Question, list[int]]] = []
    longest = 0
    while pending:
        question = pending[0]
        if not question.wants_more:
            pending.popleft()
            continue
        longest = max(longest, len(question.token_ids[question.num_taken]))
        if batch and (len(batch) + 1) * longest > tokens_per_step:
            break
        batch.append((question, question.take()))
        pending.rotate(-1)
    return batch


class Batcher:
    def __init__(self, encoder: Encoder, executor: Executor, tokens_per_step: int) -> None:
        self._encoder = encoder
        self._executor = executor
        """One thread: the model's."""
        self._tokens_per_step = tokens_per_step
        self._pending: deque[Question] = deque()
        self._work = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        token_ids = await asyncio.to_thread(self._encoder.tokenize, texts)
        question = Question(token_ids, asyncio.get_running_loop().create_future())
        self._pending.append(question)
        self._work.set()
        vectors = await question.done
        return Embedded(tuple(vectors), sum(map(len, token_ids)))

    async def run(self) -> None:
        """For ever: one batch after the other."""
        while True:
            await self._work.wait()
            self._work.clear()
            while batch := next_batch(self._pending, self._tokens_per_step):
                await self._step(batch)

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
