"""A question to the embedder that is lost with the one that had it, or with the bus, is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from baton_common.errors import RequestFailed
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_contracts.queries import EmbedQuery
from baton_edge_api.embedder_call import EmbedderCall
from tests.support.relay import eventually, running_node
from tests.support.scripted_embedder import ScriptedEmbedder, direction, scripted_embedder

RID = "0af7651916cd43dd8448eb211c80319c"
QUERY = EmbedQuery(texts=("abc",))


@pytest.fixture
async def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
async def edge(bus: MemoryBus) -> AsyncIterator[Node]:
    async with running_node(bus, "edge_api") as node:
        yield node


async def is_known(edge: Node, embedder: ScriptedEmbedder) -> None:
    instance = embedder.node.instance
    await eventually(lambda: instance in edge.leases.ready_instances("embedder"))


async def test_another_one_is_asked_when_the_one_that_had_it_is_lost(bus: MemoryBus, edge: Node) -> None:
    call = EmbedderCall(edge)
    async with scripted_embedder(bus) as first, scripted_embedder(bus) as second:
        await is_known(edge, first)
        await is_known(edge, second)
        first.may_answer.clear()
        second.may_answer.clear()
        asking = asyncio.create_task(call(RID, QUERY, 30))
        await eventually(lambda: len(first.queries) + len(second.queries) == 1)
        has_it, other = (first, second) if first.queries else (second, first)
        other.may_answer.set()
        await has_it.node.stop()
        async with asyncio.timeout(20):
            reply = await asking
    assert reply.vectors == (direction(3),)
    assert (len(first.queries), len(second.queries)) == (1, 1)


async def test_it_is_asked_again_behind_an_outage_of_the_bus(bus: MemoryBus, edge: Node) -> None:
    call = EmbedderCall(edge)
    async with scripted_embedder(bus) as embedder:
        await is_known(edge, embedder)
        embedder.may_answer.clear()
        asking = asyncio.create_task(call(RID, QUERY, 30))
        await eventually(lambda: len(embedder.queries) == 1)
        bus.online = False
        bus.online = True
        await eventually(lambda: len(embedder.queries) == 2)
        embedder.may_answer.set()
        assert (await asking).vectors == (direction(3),)


async def test_it_is_not_waited_for_longer_than_told(bus: MemoryBus, edge: Node) -> None:
    async with scripted_embedder(bus) as embedder:
        await is_known(edge, embedder)
        embedder.may_answer.clear()
        with pytest.raises(RequestFailed) as failed:
            await EmbedderCall(edge)(RID, QUERY, 0.05)
    assert failed.value.error.code == "stop_unresponsive"


async def test_with_nobody_left_it_says_so_at_once(bus: MemoryBus, edge: Node) -> None:
    call = EmbedderCall(edge)
    async with scripted_embedder(bus) as embedder:
        await is_known(edge, embedder)
        embedder.may_answer.clear()
        asking = asyncio.create_task(call(RID, QUERY, 30))
        await eventually(lambda: len(embedder.queries) == 1)
        for subscription in [one for one in bus.subscriptions if one.pattern.startswith("baton.v1.embed")]:
            await subscription.unsubscribe()
        await embedder.node.stop()
        with pytest.raises(RequestFailed) as failed:
            await asking
    assert failed.value.error.code == "no_responder"
