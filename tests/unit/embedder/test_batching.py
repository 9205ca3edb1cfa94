"""Texts of all pending questions share batches, in turn, within the budget of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_embedder.batching import Batcher, Question, next_batch
from baton_embedder.encoder import CUT, Terms, Vector


class LengthEncoder:
    """A text is as many tokens as it has characters; its vector is (length,). Records its batches."""

    name = "length"

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def tokenize(self, texts: Sequence[str], terms: Terms = CUT) -> list[list[int]]:
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


def _lengths(batch: list[tuple[Question, list[int]]]) -> list[int]:
    return [len(ids) for _, ids in batch]


async def test_a_batch_takes_one_text_of_each_question_in_turn_within_the_budget() -> None:
    pending = [_question(5, 5, 5, 5), _question(2), _question(3, 3)]
    assert _lengths(next_batch(pending, 30, oldest_first=False)) == [2, 3, 5, 3, 5, 5]
    assert _lengths(next_batch(pending, 30, oldest_first=False)) == [5]
    assert next_batch(pending, 30, oldest_first=False) == []


async def test_the_shortest_question_comes_first_or_the_oldest() -> None:
    pending = [_question(9, 9, 9), _question(9)]
    assert next_batch(pending, 9, oldest_first=False)[0][0] is pending[1]
    assert next_batch(pending, 9, oldest_first=True)[0][0] is pending[0]


async def test_a_short_text_is_not_padded_to_a_page() -> None:
    pending = [_question(100, 100), _question(10)]
    assert _lengths(next_batch(pending, 1000, oldest_first=False)) == [10]
    assert _lengths(next_batch(pending, 1000, oldest_first=False)) == [100, 100]
    beside = [_question(60), _question(100)]
    assert _lengths(next_batch(beside, 1000, oldest_first=True)) == [60, 100]


async def test_padding_counts_and_a_text_over_the_budget_goes_alone() -> None:
    pending = [_question(30), _question(1), _question(1)]
    assert _lengths(next_batch(pending, 20, oldest_first=True)) == [30]
    assert _lengths(next_batch(pending, 20, oldest_first=True)) == [1, 1]


async def test_a_search_waits_for_one_step_of_an_ingest_and_the_ingest_is_not_starved() -> None:
    encoder = LengthEncoder()
    with ThreadPoolExecutor(1) as executor:
        batcher = Batcher(encoder, executor, tokens_per_step=40)
        ingest = asyncio.create_task(batcher.embed(["x" * 40] * 4))
        await asyncio.to_thread(lambda: None)
        searches = [asyncio.create_task(batcher.embed(["y" * 5])) for _ in range(3)]
        async with asyncio.timeout(20):
            while sum(question.num_left for question in batcher.pending) < 7:
                await asyncio.sleep(0)
        running = asyncio.create_task(batcher.run())
        await asyncio.gather(ingest, *searches)
        running.cancel()
        await asyncio.wait([running])
    assert encoder.batches == [[5, 5, 5], [40], [40], [40], [40]]


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
    assert _lengths(next_batch([gone, _question(4)], 20, oldest_first=True)) == [4]


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), max_size=6),
    st.integers(1, 100),
    st.booleans(),
)
def test_every_text_is_taken_exactly_once_and_no_batch_breaks_the_budget(
    questions: list[list[int]], budget: int, oldest_first: bool
) -> None:
    async def run() -> None:
        pending = [_question(*lengths) for lengths in questions]
        taken: list[int] = []
        while batch := next_batch(pending, budget, oldest_first=oldest_first):
            lengths = _lengths(batch)
            assert len(lengths) == 1 or len(lengths) * max(lengths) <= budget
            taken += lengths
        assert sorted(taken) == sorted(length for lengths in questions for length in lengths)

    asyncio.run(run())
