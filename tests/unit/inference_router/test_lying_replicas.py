"""Replicas that lie, gape or come twice: what they say is bounded, and nobody else's request pays for it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.base import MAX_COUNT
from baton_contracts.handoffs import Ack, EngineHandoff
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.kv_events import KvChange, KvEvents
from baton_inference_router.kv_listener import KvListener
from baton_inference_router.prefix_index import PrefixIndex
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.scoring import Asked, ranked
from tests.support.relay import HandClock
from tests.support.router_bench import TOKENS, answer_tokens, ask, handoff, refuses, router, takes

A = "engine_worker-0000000a"
COUNTS = ("num_running", "num_waiting", "waiting_tokens", "prefill_tokens", "max_running", "max_waiting")
TOTALS = ("kv_blocks_total", "generation_tokens_total", "finished_requests_total", "max_waiting_tokens")


def beat(replica: str = A, sent_at: float = 1.0, **fields: object) -> ReplicaHeartbeat:
    values = {"model": "m", "state": "ready", "max_running": 4, "kv_epoch": "e"} | fields
    return ReplicaHeartbeat.model_validate({"replica": replica, "sent_at": sent_at} | values)


@pytest.mark.parametrize(
    "lie",
    [
        '"waiting_tokens":1' + "0" * 400,
        '"num_running":-1',
        '"prefill_tokens_per_second":NaN',
        '"prefill_tokens_per_second":Infinity',
        '"requests_per_second":1e300',
        '"kv_usage":1.5',
        '"counting_since":-Infinity',
        '"step_profile":{"model_seconds":Infinity}',
        '"step_profile":{"steps_total":1' + "0" * 400 + "}",
        '"speculation":{"draft_tokens_total":1' + "0" * 400 + "}",
    ],
)
def test_a_number_beyond_all_measure_is_no_message(lie: str) -> None:
    """What was known before stands, until the replica has been silent for too long."""
    time = HandClock()
    table = ReplicaTable(time.clock, stale_seconds=2.0)
    table.on_heartbeat(beat(num_running=2))
    honest = beat(sent_at=2.0).encode().decode()
    table.on_message(BusMessage("", f"{honest[:-1]},{lie}}}".encode()))
    (kept,) = table.candidates("m")
    assert kept.load == 2
    time.move(2.1)
    assert table.candidates("m") == []


@pytest.mark.parametrize("field", [*COUNTS, *TOTALS])
def test_the_largest_numbers_can_be_calculated_with(field: str) -> None:
    table = ReplicaTable(HandClock().clock, stale_seconds=2.0)
    largest = {field: MAX_COUNT, "prefill_tokens_per_second": 1e12, "requests_per_second": 1e12}
    table.on_heartbeat(beat(**largest))
    table.on_heartbeat(beat("honest", prefill_tokens_per_second=1000.0))
    seat = table.reserve(A, 100)
    order = ranked(table.candidates("m"), Asked(100, "adapter"), {"honest": 64})
    seat.accept(Ack(verdict="held", instance=A, waiting=MAX_COUNT, running=MAX_COUNT))
    after = ranked(table.candidates("m"), Asked(100))
    assert "honest" in {each.replica for each in order}
    assert [each.replica for each in after if each.load < MAX_COUNT] == ["honest"]


async def test_one_that_claims_to_be_idle_and_refuses_costs_each_request_one_question() -> None:
    async with router() as (bus, replicas):
        await replicas.add("liar", refuses("liar", "queue_full"), prefill_tokens_per_second=1e12)
        await replicas.add("r-2", takes("r-2"), num_running=2, prefill_tokens_per_second=1000.0)
        acks = [await ask(bus) for _ in range(3)]
    assert [ack.instance for ack in acks] == ["r-2"] * 3
    assert [name for name, _ in replicas.taken] == ["liar", "r-2"] * 3


@pytest.mark.parametrize(
    "reply",
    [
        b'{"num_tokens":1' + b"0" * 400 + b"}",
        b'{"num_tokens":NaN}',
        b'{"num_tokens":-5}',
        b'{"num_tokens":40,"block_hashes":["not hex"]}',
        b"nothing",
    ],
)
async def test_tokens_that_can_not_be_leave_the_choice_to_load(reply: bytes) -> None:
    async with router() as (bus, replicas):
        await answer_tokens(bus, reply)
        await replicas.add("busy", takes("busy"), num_running=2)
        await replicas.add("idle", takes("idle"))
        assert (await ask(bus)).instance == "idle"


async def test_blocks_of_another_size_match_nothing_and_spare_no_more_than_the_prompt() -> None:
    hashes = tuple(f"{number:064x}" for number in range(1, 4))
    async with router() as (bus, replicas):
        await answer_tokens(bus, TOKENS.model_copy(update={"block_hashes": hashes, "block_size": MAX_COUNT}))
        for name, running, prefix in (("same", 1, ""), ("other", 0, "f")):
            await replicas.add(name, takes(name), num_running=running, kv_epoch="e")
            held = tuple(prefix + each[len(prefix) :] for each in hashes)
            changes = (KvChange(kind="cleared"), KvChange(kind="stored", block_hashes=held))
            replicas.index.told(KvEvents(replica=name, epoch="e", seq=0, block_size=32, changes=changes))
        await ask(bus)
    ((name, _),) = replicas.taken
    assert name == "other"  # 33 tokens are spared at most: fewer than count


async def test_a_repair_that_never_comes_is_asked_for_a_few_times_a_second() -> None:
    """A thousand heartbeats of one that never tells its blocks; then of two that share its name."""
    time, bus = HandClock(), MemoryBus()
    node = Node(bus, "inference_router", time.clock)
    listener = KvListener(node, PrefixIndex(time.clock, 1000))
    asked: list[str] = []
    await bus.subscribe(subjects.kv_ask("*"), lambda message: asked.append(message.subject))
    for epochs in (("e",), ("e", "f")):
        asked.clear()
        for number in range(1000):
            listener.on_heartbeat(beat(kv_epoch=epochs[number % len(epochs)], kv_next_seq=5))
            time.move(0.001)
            await asyncio.sleep(0)
        assert 3 <= len(asked) <= 4


def test_two_of_one_name_are_one_row_whose_last_word_counts() -> None:
    table = ReplicaTable(HandClock().clock, stale_seconds=2.0)
    table.on_heartbeat(beat(sent_at=1.0, num_running=3))
    seat = table.reserve(A, 50)
    table.on_heartbeat(beat(sent_at=1.1, num_running=0))
    (row,) = table.candidates("m")
    assert (row.load, row.waiting_tokens) == (1, 50)
    table.on_heartbeat(beat(sent_at=1.2, state="gone"))
    table.on_heartbeat(beat(sent_at=1.3, num_running=0))
    seat.release()
    (row,) = table.candidates("m")
    assert (row.load, row.waiting_tokens, table.num_reserved) == (0, 0, 0)


async def test_two_routers_do_not_see_each_others_seats_and_the_replica_bounds_both() -> None:
    """Room for four, twenty at once: each router would send four; sixteen are told to come again."""
    taken = 0

    def room_for_four(_handoff: EngineHandoff) -> Ack:
        nonlocal taken
        if taken == 4:
            full = refuses(A, "queue_full", waiting=2, running=2)(_handoff)
            assert full
            return full
        taken += 1
        return Ack(verdict="held", instance=A, waiting=taken // 2, running=taken - taken // 2)

    async with AsyncExitStack() as stack:
        bus, first = await stack.enter_async_context(router())
        _, second = await stack.enter_async_context(router(bus))
        await first.add(A, room_for_four, max_running=2, max_waiting=2)
        second.table.on_heartbeat(first.beats[A])
        acks = await asyncio.gather(*(ask(bus, handoff()) for _ in range(20)))
        reserved = first.table.num_reserved + second.table.num_reserved
    refused = [ack.error for ack in acks if ack.error]
    assert (taken, len(refused), reserved) == (4, 16, 0)
    assert {(error.code, error.status) for error in refused} == {("queue_full", 503)}
    assert all(error.retry_after_seconds for error in refused)
    assert 4 < len(first.taken) <= 8
