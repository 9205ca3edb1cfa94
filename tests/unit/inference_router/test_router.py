"""The router on the in-memory bus, with replicas that answer as they are told."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from baton_common.actor import Actor
from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.handoffs import Ack, EngineHandoff, EngineWork, RouteHandoff
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import Message, Part, Prompt
from baton_inference_router.actor import Router
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.settings import Settings

Answer = Callable[[EngineHandoff], Ack | None]


class Replicas:
    def __init__(self, bus: MemoryBus, table: ReplicaTable) -> None:
        self.bus = bus
        self.table = table
        self.taken: list[tuple[str, EngineHandoff]] = []

    async def add(self, name: str, answer: Answer | None, **fields: Any) -> str:
        """`answer` None: it beats, but nobody listens there."""
        values: dict[str, Any] = {"state": "ready", "max_running": 4, "max_waiting": 4, "sent_at": 1.0}
        self.table.on_heartbeat(ReplicaHeartbeat(replica=name, model="m", **(values | fields)))

        def on_message(message: BusMessage) -> None:
            handoff = EngineHandoff.decode(message.payload)
            self.taken.append((name, handoff))
            assert answer
            if ack := answer(handoff):
                spawn(self.bus.publish(message.reply, ack.encode()))

        if answer:
            await self.bus.subscribe(subjects.engine_all(name), on_message)
        return name


def takes(name: str, **counts: int) -> Answer:
    return lambda _: Ack(verdict="held", instance=name, **counts)


def refuses(name: str, code: Any, **counts: int) -> Answer:
    error = ErrorBody(code=code, message="no", stop="engine_worker")
    return lambda _: Ack(verdict="refused", instance=name, error=error, **counts)


@asynccontextmanager
async def router(**settings: Any) -> AsyncGenerator[tuple[MemoryBus, Replicas], None]:
    bus = MemoryBus()
    node = Node(bus, "inference_router")
    table = ReplicaTable(node.clock, 2.0)
    handler = Router(table, Settings(**settings))
    node.add(
        Actor(
            node,
            subject=subjects.ROUTE_ALL,
            message=RouteHandoff,
            handle=handler.handle,
            stop_number=6,
            ack_by_handler=True,
        )
    )
    await node.start()
    await node.become_ready()
    try:
        yield bus, Replicas(bus, table)
    finally:
        await node.stop()


def handoff(**fields: Any) -> RouteHandoff:
    now = time.time()
    envelope = Envelope(
        request_id=new_request_id(),
        run_id="00000000",
        tenant=Tenant(tenant_id="t", key_id="k"),
        edge="edge_api-1",
        conversation_id="c",
        deadline=now + 10,
        sent_at=now,
    )
    prompt = Prompt(messages=(Message(role="user", parts=(Part(text="hi"),)),))
    work = EngineWork(model="m", prompt=prompt)
    return RouteHandoff(envelope=envelope, work=work, gateway="g-1", guard="o-1", **fields)


async def ask(bus: MemoryBus, asked: RouteHandoff | None = None) -> Ack:
    asked = asked or handoff()
    raw = await bus.request(subjects.route(asked.envelope.request_id), asked.encode(), timeout=2)
    return Ack.decode(raw)


async def test_the_replica_that_took_it_is_named_with_its_queue_length() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-busy", takes("r-busy"), num_running=2)
        await replicas.add("r-idle", takes("r-idle", waiting=1, running=0))
        asked = handoff()
        ack = await ask(bus, asked)
        ((_, given),) = replicas.taken

    assert (ack.verdict, ack.instance, ack.waiting) == ("held", "r-idle", 1)
    assert given.work == asked.work
    assert (given.gateway, given.guard) == ("g-1", "o-1")
    assert given.envelope.request_id == asked.envelope.request_id


async def test_refused_means_the_next_best_and_the_table_learns() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", refuses("r-1", "queue_full", waiting=4, running=4))
        await replicas.add("r-2", takes("r-2", waiting=1, running=1), num_running=1)
        first, second = await ask(bus), await ask(bus)

    assert (first.instance, second.instance) == ("r-2", "r-2")
    assert [name for name, _ in replicas.taken] == ["r-1", "r-2", "r-2"]


async def test_nobody_there_means_the_next_best_and_never_that_one_again() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", None)
        await replicas.add("r-2", takes("r-2"), num_running=1)
        acks = [await ask(bus) for _ in range(3)]
        left = replicas.table.candidates("m")

    assert {ack.instance for ack in acks} == {"r-2"}
    assert [each.replica for each in left] == ["r-2"]


async def test_the_clients_own_fault_is_passed_on_and_not_tried_elsewhere() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", refuses("r-1", "context_length_exceeded"))
        await replicas.add("r-2", takes("r-2"), num_running=1)
        ack = await ask(bus)

    assert ack.verdict == "refused"
    assert ack.error
    assert (ack.error.code, ack.error.stop) == ("context_length_exceeded", "engine_worker")
    assert len(replicas.taken) == 1


async def test_all_refuse_for_want_of_memory() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", refuses("r-1", "kv_exhausted"))
        await replicas.add("r-2", refuses("r-2", "kv_exhausted"))
        ack = await ask(bus)

    assert ack.error
    assert (ack.error.code, ack.error.status) == ("kv_exhausted", 503)
    assert len(replicas.taken) == 2


async def test_full_replicas_are_not_even_asked() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", takes("r-1"), num_running=4, num_waiting=4)
        ack = await ask(bus)

    assert ack.error
    assert ack.error.code == "queue_full"
    assert replicas.taken == []


async def test_where_the_request_failed_already_it_is_not_sent_again() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", takes("r-1"))
        await replicas.add("r-2", takes("r-2"), num_running=3)
        second = await ask(bus, handoff(avoid_replicas=("r-1",)))
        third = await ask(bus, handoff(avoid_replicas=("r-1", "r-2")))

    assert second.instance == "r-2"
    assert third.error
    assert third.error.code == "no_ready_replica"


async def test_one_that_does_not_answer_may_have_taken_it_so_nobody_else_is_asked() -> None:
    async with router(router_dispatch_seconds=0.05) as (bus, replicas):
        await replicas.add("r-1", lambda _: None)
        await replicas.add("r-2", takes("r-2"), num_running=1)
        first, second = await ask(bus), await ask(bus)
        reserved = replicas.table.num_reserved

    assert first.error
    assert (first.error.code, first.error.stop) == ("stop_unresponsive", "engine_worker")
    assert second.instance == "r-2"
    assert reserved == 1  # the second one's, until the next heartbeat
