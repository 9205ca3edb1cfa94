"""A leader that can't renew its word stops before others may take it, whatever the bus does."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from baton_common.errors import RequestFailed
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_edge_api.batches import lead as lead_module
from baton_edge_api.batches.lead import Lead


class SilentStore:
    """Takes the first word; of the others nothing is heard."""

    def __init__(self) -> None:
        self.num_words = 0

    async def leader(self) -> tuple[str, int]:
        return "", 0

    async def take_lead(self, instance: str, revision: int) -> int:
        self.num_words += 1
        if self.num_words > 1:
            await asyncio.Event().wait()
        return 1


class ForgetfulStore:
    """Writes every word; of each second one the answer is lost."""

    def __init__(self) -> None:
        self.word = ("", 0)
        self.num_words = 0
        self.renewed_after_loss = asyncio.Event()

    async def leader(self) -> tuple[str, int]:
        return self.word

    async def take_lead(self, instance: str, revision: int) -> int | None:
        if revision != self.word[1]:
            return None
        self.num_words += 1
        self.word = (instance, revision + 1)
        if self.num_words > 4:
            self.renewed_after_loss.set()
        if self.num_words % 2 == 0:
            raise RequestFailed.because("bus_unavailable", "The answer was lost.")
        return self.word[1]


async def test_a_leader_knows_its_own_word_again_when_the_answer_to_it_was_lost() -> None:
    store = ForgetfulStore()
    lead = Lead(Node(MemoryBus(), "edge_api"), cast(Any, store), renew_seconds=0.01)
    assert await lead.try_take()
    keeping = asyncio.create_task(lead.keep())
    async with asyncio.timeout(20):
        await store.renewed_after_loss.wait()
    assert not keeping.done()
    store.word = ("edge_api-other", store.word[1] + 1)
    async with asyncio.timeout(20):
        await keeping


async def test_who_begins_with_its_own_word_standing_there_leads_at_once() -> None:
    store = ForgetfulStore()
    node = Node(MemoryBus(), "edge_api")
    store.word = (node.instance, 7)
    assert await Lead(node, cast(Any, store)).try_take()


async def test_a_bus_that_does_not_answer_does_not_hold_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead_module, "LOST_SECONDS", 0.05)
    store = SilentStore()
    lead = Lead(Node(MemoryBus(), "edge_api"), cast(Any, store), renew_seconds=0.01)
    assert await lead.try_take()
    async with asyncio.timeout(20):
        await lead.keep()
    assert store.num_words == 2
