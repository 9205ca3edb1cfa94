"""A leader that can't renew its word stops before others may take it, whatever the bus does."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

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


async def test_a_bus_that_does_not_answer_does_not_hold_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead_module, "LOST_SECONDS", 0.05)
    store = SilentStore()
    lead = Lead(Node(MemoryBus(), "edge_api"), cast(Any, store), renew_seconds=0.01)
    assert await lead.try_take()
    async with asyncio.timeout(5):
        await lead.keep()
    assert store.num_words == 2
