"""R7 over NATS: 10,000 requests through a router process, cancelled before it has them, while it hands them
over, at once afterwards, or later. Nothing is held at the end, and every seat is free: exactly as many
requests find a place as the replicas have.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from baton_common.bus import BusMessage
from baton_common.nats_bus import NatsBus
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Cancel
from baton_contracts.handoffs import Ack, EngineWork, RouteHandoff
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.prompt import Message, Part, Prompt
from tests.support.restricted_nats import RestrictedNats
from tests.support.service_process import running_service
from tests.support.waiting import eventually

COUNT = 10_000
AT_ONCE = 40
NAMES = [f"engine_worker-{number}" for number in range(4)]
MAX_RUNNING, MAX_WAITING = 8, 8
BEAT_AFTER = 40
"""Handoffs; all replicas tell their counts then."""
PROMPT = Prompt(messages=(Message(role="user", parts=(Part(text="Hello?"),)),))


class Fleet:
    """Four replicas on one connection. Each refuses some, and says nothing of a few that it has taken."""

    def __init__(self, bus: NatsBus, chance: random.Random) -> None:
        self.bus = bus
        self.chance = chance
        self.moody = True
        self.held: dict[str, set[str]] = {name: set() for name in NAMES}
        self.num_handed = 0

    async def start(self) -> None:
        for name in NAMES:
            await self.bus.subscribe(subjects.engine_all(name), self._on_handoff)
        await self.bus.subscribe(subjects.CANCEL_ALL, self._on_cancel)
        await self.beat()

    async def beat(self) -> None:
        for name in NAMES:
            counts = self.counts(name)
            beat = ReplicaHeartbeat(
                replica=name,
                model="m",
                state="ready",
                sent_at=time.time(),
                num_running=counts["running"],
                num_waiting=counts["waiting"],
                max_running=MAX_RUNNING,
                max_waiting=MAX_WAITING,
            )
            await self.bus.publish(subjects.replica("m", name), beat.encode())

    def counts(self, name: str) -> dict[str, int]:
        held = len(self.held[name])
        return {"running": min(MAX_RUNNING, held), "waiting": max(0, held - MAX_RUNNING)}

    def _on_handoff(self, message: BusMessage) -> None:
        *_, name, request_id = message.subject.split(".")
        self.num_handed += 1
        if self.moody and self.num_handed % BEAT_AFTER == 0:
            spawn(self.beat())
        mood = self.chance.random() if self.moody else 0.5
        if mood < 0.1 or len(self.held[name]) >= MAX_RUNNING + MAX_WAITING:
            error = ErrorBody(code="queue_full", message="no", stop="engine_worker")
            ack = Ack(verdict="refused", instance=name, error=error, **self.counts(name))
        else:
            self.held[name].add(request_id)
            told = self.counts(name) if self.moody and mood < 0.7 else {}
            ack = Ack(verdict="held", instance=name, **told)
        if mood < 0.995:
            spawn(self.bus.publish(message.reply, ack.encode()))

    def _on_cancel(self, message: BusMessage) -> None:
        for held in self.held.values():
            held.discard(message.subject.rsplit(".", 1)[-1])


class Askers:
    """What gateways do: they ask, cancel when their client leaves, and take back what nobody heard of."""

    def __init__(self, bus: NatsBus, chance: random.Random) -> None:
        self.bus = bus
        self.chance = chance
        self.answers: Counter[str] = Counter()
        self.running: list[str] = []

    async def one(self, number: int) -> None:
        request_id = f"{number + 1:032x}"
        leaves = self.chance.choice(("before", "meanwhile", "at once", "later"))
        if leaves == "before":
            await self.cancel(request_id)
        asking = asyncio.create_task(self.ask(request_id))
        if leaves == "meanwhile":
            await self.cancel(request_id)
        if await asking != "held":
            return
        if leaves != "later":
            await self.cancel(request_id)
            return
        self.running.append(request_id)
        if len(self.running) > MAX_RUNNING:
            await self.cancel(self.running.pop(self.chance.randrange(len(self.running))))

    async def ask(self, request_id: str) -> str:
        now = time.time()
        envelope = Envelope(
            request_id=request_id,
            run_id="0a1b2c3d",
            tenant=Tenant(tenant_id="acme", key_id="dev"),
            edge="edge_api-1",
            conversation_id="talk",
            deadline=now + 30,
            sent_at=now,
        )
        work = EngineWork(model="m", prompt=PROMPT)
        handoff = RouteHandoff(envelope=envelope, work=work, gateway="llm_gateway-1", guard="g-1")
        raw = await self.bus.request(subjects.route(request_id), handoff.encode(), timeout=20)
        ack = Ack.decode(raw)
        answer = ack.error.code if ack.error else ack.verdict
        if answer == "stop_unresponsive":
            await self.cancel(request_id)
        self.answers[answer] += 1
        return answer

    async def cancel(self, request_id: str) -> None:
        cancel = Cancel(request_id=request_id, run_id="0a1b2c3d", reason="client_disconnected")
        await self.bus.publish(subjects.cancel(request_id), cancel.encode())

    async def router_holds(self) -> tuple[int, int]:
        raw = await self.bus.request("$SRV.STATS.inference_router", b"", timeout=5)
        stats: dict[str, Any] = json.loads(raw)["endpoints"][0]["data"]
        return stats["held"], stats["cancellable"]


@asynccontextmanager
async def stand(nats: RestrictedNats) -> AsyncGenerator[tuple[Fleet, Askers], None]:
    chance = random.Random(7)  # noqa: S311  # the same mix in each run
    environment = nats.environment("inference_router") | {
        "BATON_ROUTER_DISPATCH_SECONDS": "0.25",
        "BATON_ROUTER_COOLDOWN_SECONDS": "0",
        "BATON_ROUTER_PREFIX_AWARE": "false",
    }
    buses = [await nats.connect(), await nats.connect()]
    fleet, askers = Fleet(buses[0], chance), Askers(buses[1], chance)
    try:
        async with running_service("inference_router", environment):
            await fleet.start()
            yield fleet, askers
    finally:
        for bus in buses:
            await bus.close()


async def test_nothing_is_held_and_every_seat_is_free_at_the_end(relay_nats: RestrictedNats) -> None:
    async with stand(relay_nats) as (fleet, askers):
        turns = asyncio.Semaphore(AT_ONCE)

        async def in_turn(number: int) -> None:
            async with turns:
                await askers.one(number)

        await asyncio.gather(*(in_turn(number) for number in range(COUNT)))
        for request_id in askers.running:
            await askers.cancel(request_id)
        await eventually(lambda: not any(fleet.held.values()))

        asked = askers.answers
        assert asked.total() == COUNT
        assert set(asked) == {"held", "queue_full", "stop_unresponsive"}
        assert asked["held"] > COUNT / 4
        assert await askers.router_holds() == (0, 0)

        fleet.moody = False
        await fleet.beat()
        await askers.router_holds()  # answered after the heartbeats before it were heard
        places = len(NAMES) * (MAX_RUNNING + MAX_WAITING)
        found = [await askers.ask(f"{COUNT + number + 1:032x}") for number in range(places + 1)]
        assert found == ["held"] * places + ["queue_full"]
        assert {len(held) for held in fleet.held.values()} == {MAX_RUNNING + MAX_WAITING}
