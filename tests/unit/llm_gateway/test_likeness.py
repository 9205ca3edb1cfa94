"""Asking the embedder: vectors, or none; one that fails is left alone for a while."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.memory_bus import MemoryBus
from baton_llm_gateway.likeness import REST_SECONDS, EmbedderClient, similarity
from tests.support.scripted_embedder import MODEL, direction, scripted_embedder

RID = "0" * 31 + "1"


class SteppedClock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


async def test_one_vector_a_text() -> None:
    bus = MemoryBus()
    async with scripted_embedder(bus):
        client = EmbedderClient(bus, SteppedClock(), 1.0)  # pyright: ignore[reportArgumentType]
        found = await client.embed(RID, ["abc", "abcde"])
    assert found is not None
    assert found.model == MODEL
    assert found.vectors == (pytest.approx(direction(3)), pytest.approx(direction(5)))


async def test_one_that_is_away_or_slow_is_left_alone_for_a_while() -> None:
    bus, clock = MemoryBus(), SteppedClock()
    client = EmbedderClient(bus, clock, 0.02)  # pyright: ignore[reportArgumentType]
    assert await client.embed(RID, ["abc"]) is None  # nobody is there
    async with scripted_embedder(bus) as embedder:
        assert await client.embed(RID, ["abc"]) is None
        assert embedder.queries == []
        clock.now += REST_SECONDS
        embedder.may_answer.clear()
        assert await client.embed(RID, ["abc"]) is None  # slow
        await asyncio.wait_for(embedder.asked.wait(), 2)
        embedder.may_answer.set()
        assert await client.embed(RID, ["abc"]) is None
        assert len(embedder.queries) == 1
        clock.now += REST_SECONDS
        assert await client.embed(RID, ["abc"]) is not None


def test_similarity_is_the_cosine() -> None:
    assert similarity((1.0, 0.0), (0.6, 0.8)) == 0.6
