"""Texts of all pending questions share batches, in turn, within the budget of tokens."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_embedder.batching import Batcher, Question, next_batch
from baton_embedder.encoder import Vector


class LengthEncoder:
    """A text is as many tokens as it has characters; its vector is (length,). Records its batches."""

    name = "length"

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [[1] * len(text) for text in texts]

    def encode(self, batch: Sequence[list[int]]) -> list[Vector]:
        if any(len(ids) == 13 for ids in batch):
            raise RuntimeError("thirteen")
        self.batches.append([len(ids) for ids in batch])
        return [(float(len(ids)),) for ids in batch]


@pytest.fixture
async def model() -> AsyncIterator[tuple[LengthEncoder, Batcher]]:
    encoder = LengthEncoder()
    with ThreadPoolExecutor(1) as executor:
        batcher = Batcher(encoder, executor, tokens_per_step=20)
        running = asyncio.create_task(batcher.run())
        yield encoder, batcher
        running.cancel()
        await asyncio.wait([running])


def _question(*lengths: int) -> Question:
    return Question([[1] * length for length in lengths], asyncio.get_running_loop().create_future())


async def test_a_batch_takes_one_text_of_each_question_in_turn_within_the_budget() -> None:
    long, short = _question(5, 5, 5, 5), _question(2)
    pending = deque([long, short])
    first = next_batch(pending, 20)
    assert [len(ids) for _, ids in first] == [5, 2, 5, 5]
    assert [len(ids) for _, ids in next_batch(pending, 20)] == [5]
    assert not next_batch(pending, 20)
    assert not pending


async def test_padding_counts_and_a_text_over_the_budget_goes_alone() -> None:
    pending = deque([_question(30), _question(1), _question(1)])
    assert [len(ids) for _, ids in next_batch(pending, 20)] == [30]
    assert [len(ids) for _, ids in next_batch(pending, 20)] == [1, 1]


async def test_vectors_come_back_in_the_order_of_the_texts(model: tuple[LengthEncoder, Batcher]) -> None:
    _, batcher = model
    one, two = await asyncio.gather(batcher.embed(["aaa", "a", "aa"]), batcher.embed(["bbbb"]))
    assert one.vectors == ((3.0,), (1.0,), (2.0,))
    assert one.prompt_tokens == 6
    assert two.vectors == ((4.0,),)


async def test_concurrent_questions_share_a_batch(model: tuple[LengthEncoder, Batcher]) -> None:
    encoder, batcher = model
    await asyncio.gather(*(batcher.embed(["ab"]) for _ in range(40)))
    assert sum(map(len, encoder.batches)) == 40
    assert max(map(len, encoder.batches)) == 10  # 20 tokens, two a text
    assert len(encoder.batches) < 40


async def test_a_failing_batch_fails_its_questions_and_the_next_one_works(
    model: tuple[LengthEncoder, Batcher],
) -> None:
    _, batcher = model
    with pytest.raises(RuntimeError, match="thirteen"):
        await batcher.embed(["x" * 13])
    assert (await batcher.embed(["abc"])).vectors == ((3.0,),)


async def test_a_question_that_nobody_waits_for_is_not_computed() -> None:
    gone = _question(3)
    gone.done.cancel()
    pending = deque([gone, _question(4)])
    assert [len(ids) for _, ids in next_batch(pending, 20)] == [4]


@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), max_size=6), st.integers(1, 100))
def test_every_text_is_taken_exactly_once_and_no_batch_breaks_the_budget(
    questions: list[list[int]], budget: int
) -> None:
    async def run() -> None:
        pending = deque(_question(*lengths) for lengths in questions)
        taken: list[int] = []
        while batch := next_batch(pending, budget):
            lengths = [len(ids) for _, ids in batch]
            assert len(lengths) == 1 or len(lengths) * max(lengths) <= budget
            taken += lengths
        assert sorted(taken) == sorted(length for lengths in questions for length in lengths)

    asyncio.run(run())
