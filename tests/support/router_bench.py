"""A router on the in-memory bus, and replicas that answer as they are told."""

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
from baton_contracts.tokens import TokensReply
from baton_inference_router.actor import Router
from baton_inference_router.prefix_index import PrefixIndex
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.settings import Settings

TOKENS = TokensReply(
    num_tokens=33, token_ids=tuple(range(33)), tokenizer="t", block_hashes=("a" * 64, "b" * 64)
)
LONG = "To be, or not to be, that is the question. " * 3
Answer = Callable[[EngineHandoff], Ack | None]


class Replicas:
    def __init__(self, bus: MemoryBus, table: ReplicaTable, index: PrefixIndex) -> None:
        self.bus = bus
        self.index = index
        self.table = table
        self.taken: list[tuple[str, EngineHandoff]] = []
        self.beats: dict[str, ReplicaHeartbeat] = {}

    async def add(self, name: str, answer: Answer | None, **fields: Any) -> str:
        """`answer` None: it beats, but nobody listens there."""
        values: dict[str, Any] = {"state": "ready", "max_running": 4, "max_waiting": 4, "sent_at": 1.0}
        beat = self.beats[name] = ReplicaHeartbeat(replica=name, model="m", **(values | fields))
        self.table.on_heartbeat(beat)
        self.index.heard(beat)

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
async def router(
    bus: MemoryBus | None = None, **settings: Any
) -> AsyncGenerator[tuple[MemoryBus, Replicas], None]:
    """With a `bus`: one more beside those that are there."""
    bus = bus or MemoryBus()
    node = Node(bus, "inference_router")
    table = ReplicaTable(node.clock, 2.0)
    index = PrefixIndex(node.clock, 1000)
    handler = Router(table, index, Settings(**settings))
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
        yield bus, Replicas(bus, table, index)
    finally:
        await node.stop()


def handoff(seconds: float = 10.0, text: str = LONG, **fields: Any) -> RouteHandoff:
    now = time.time()
    envelope = Envelope(
        request_id=new_request_id(),
        run_id="00000000",
        tenant=Tenant(tenant_id="t", key_id="k"),
        edge="edge_api-1",
        conversation_id="c",
        deadline=now + seconds,
        sent_at=now,
    )
    prompt = Prompt(messages=(Message(role="user", parts=(Part(text=text),)),))
    work = EngineWork(model="m", prompt=prompt)
    return RouteHandoff(envelope=envelope, work=work, gateway="g-1", guard="o-1", **fields)


async def answer_tokens(bus: MemoryBus, reply: TokensReply | bytes | None) -> list[str]:
    """The subjects that were asked on."""
    asked: list[str] = []

    def on_message(message: BusMessage) -> None:
        asked.append(message.subject)
        if reply:
            raw = reply if isinstance(reply, bytes) else reply.encode()
            spawn(bus.publish(message.reply, raw))

    await bus.subscribe(subjects.tokens("*", "*"), on_message, queue="engine_worker")
    return asked


async def ask(bus: MemoryBus, asked: RouteHandoff | None = None) -> Ack:
    asked = asked or handoff()
    raw = await bus.request(subjects.route(asked.envelope.request_id), asked.encode(), timeout=2)
    return Ack.decode(raw)
