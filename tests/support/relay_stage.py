"""A stage for the relay's middle: an edge's ears and a guard that lets everything pass; between them the real
gateway, router and engine workers, on any bus.

`ask` hands a request to the gateway as the input guardrails would, and gathers what comes back to the edge.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from baton_common.actor import Actor
from baton_common.bus import Bus, BusMessage
from baton_common.clock import Clock
from baton_common.frame_inbox import FrameInbox, FrameQueue
from baton_common.handoff import hand_on
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Cancel, Data, End, Error, Prologue, ToolCallPiece
from baton_contracts.handoffs import GatewayHandoff
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import ChatRequest, Message, Part, Prompt, Sampling
from baton_contracts.records import UsageRecord
from baton_contracts.spans import Span, SpanBatch
from baton_engine_worker.__main__ import wire as wire_worker
from baton_engine_worker.settings import Settings as WorkerSettings
from baton_inference_router.__main__ import wire as wire_router
from baton_inference_router.settings import Settings as RouterSettings
from baton_llm_gateway.__main__ import wire as wire_gateway
from baton_llm_gateway.settings import Settings as GatewaySettings
from tests.support.fake_engine import FakeEngine
from tests.support.open_guard import OpenGuard
from tests.support.restricted_nats import RestrictedNats
from tests.support.waiting import eventually

MODEL = "smollm2-135m"
MakeBus = Callable[[str], Awaitable[Bus]]
Wire = Callable[[Node, Bus], AbstractAsyncContextManager[None]]


def question(text: str = "How much is six times seven?", **changes: Any) -> Prompt:
    return Prompt(messages=(Message(role="user", parts=(Part(text=text),)),), **changes)


@dataclass
class Exchange:
    """What the edge heard of one request."""

    request_id: str
    prologues: list[Prologue] = field(default_factory=list[Prologue])
    pieces: list[str] = field(default_factory=list[str])
    token_ids: list[int] = field(default_factory=list[int])
    reasoning: str = ""
    calls: dict[int, ToolCallPiece] = field(default_factory=dict[int, ToolCallPiece])
    end: End | None = None
    error: ErrorBody | None = None
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def take(self, data: Data) -> None:
        self.pieces.append(data.text)
        self.token_ids.extend(data.token_ids)
        self.reasoning += data.reasoning or ""
        for piece in data.tool_calls or ():
            begun = self.calls.get(piece.index)
            self.calls[piece.index] = begun.then(piece) if begun else piece


@dataclass(eq=False)
class Running:
    """One service of the stage, in this process."""

    node: Node
    bus: Bus
    life: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What its wiring opened."""
    has_left: bool = False

    async def leave(self, drain_seconds: float) -> None:
        """As on SIGTERM."""
        await self.node.drain(drain_seconds)
        await self.life.aclose()
        await self.node.stop()
        self.has_left = True

    async def vanish(self) -> None:
        """As if killed: its connection closes, nothing is said, what it still does is for nobody."""
        self.node.state = "gone"
        await self.bus.close()

    async def end_requests(self) -> None:
        """What it holds when its test is over. Else that ends only with the event loop, which does not wait
        for what is begun then, such as the storing of a row."""
        actors = [actor for actor in self.node._actors if isinstance(actor, Actor)]
        while held := [baton.task for actor in actors for baton in actor._held.values() if baton.task]:
            for task in held:
                task.cancel()
            await asyncio.wait(held, timeout=0.05)  # one may be swallowed: actor.py's `_end`

    @property
    def instance(self) -> str:
        return self.node.instance


class Stage:
    def __init__(self, make_bus: MakeBus, store: _Store | None = None) -> None:
        self._make_bus = make_bus
        self._store = store
        self._stack = AsyncExitStack()
        self.records: list[UsageRecord] = []
        self.spans: dict[str, list[Span]] = {}
        self._asked: dict[str, tuple[FrameQueue, float]] = {}

    async def __aenter__(self) -> Self:
        self.edge = Node(await self._make_bus("edge_api"), "edge_api")
        self.sender = await self._make_bus("input_guardrails")
        watcher = await self._make_bus("operator")
        await self.edge.start()
        self.inbox = FrameInbox(self.edge.bus, subjects.reply_all(self.edge.instance))
        await self.inbox.start()
        await watcher.subscribe(f"{subjects.ROOT}.after.usage.*", self._note_record)
        await watcher.subscribe(subjects.TRACE_ALL, self._note_spans)
        self._stack.push_async_callback(self.sender.close)
        self._stack.push_async_callback(watcher.close)
        self._stack.push_async_callback(self._leave, Running(self.edge, self.edge.bus))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def guard(self) -> Running:
        return await self._run("output_guardrails", OpenGuard)

    async def router(self, **settings: Any) -> Running:
        chosen = RouterSettings(**settings)
        return await self._run("inference_router", lambda node, bus: wire_router(chosen, node, bus))

    async def gateway(self, **settings: Any) -> Running:
        chosen = GatewaySettings(**settings)
        return await self._run("llm_gateway", lambda node, bus: wire_gateway(chosen, node, bus))

    async def worker(self, engine: Any, model: str = MODEL, **settings: Any) -> Running:
        script = getattr(engine, "script", None)
        if script:
            settings |= {
                "engine_max_seqs": script.max_running,
                "engine_max_waiting": max(1, script.max_waiting),
            }
        chosen = WorkerSettings(model=model, model_path=Path("none"), **settings)
        return await self._run("engine_worker", lambda node, bus: wire_worker(chosen, engine, node, bus))

    async def whole(self, *engines: Any, **gateway: Any) -> list[Running]:
        """Guard, router, gateway and a worker for each engine; the workers are given back."""
        workers = [await self.worker(engine) for engine in engines]
        await asyncio.gather(self.guard(), self.router(), self.gateway(**gateway))
        return workers

    async def _run(self, service: Any, wire: Wire) -> Running:
        bus = await self._make_bus(service)
        node = Node(bus, service)
        running = Running(node, bus)
        await node.start()
        self._stack.push_async_callback(self._leave, running)
        self._stack.push_async_callback(running.life.aclose)
        await running.life.enter_async_context(wire(node, bus))
        await node.become_ready()
        return running

    async def _leave(self, running: Running) -> None:
        if not running.has_left:
            await running.node.stop()
        await running.bus.close()
        await running.end_requests()

    def _note_record(self, message: BusMessage) -> None:
        self.records.append(UsageRecord.decode(message.payload))

    def _note_spans(self, message: BusMessage) -> None:
        batch = SpanBatch.decode(message.payload)
        self.spans.setdefault(batch.request_id, []).extend(batch.spans)

    def envelope(self, request_id: str | None = None, seconds: float = 20.0) -> Envelope:
        now = time.time()
        return Envelope(
            request_id=request_id or new_request_id(),
            run_id="0a1b2c3d",
            tenant=Tenant(tenant_id="acme", team="core", key_id="dev"),
            edge=self.edge.instance,
            conversation_id="talk",
            deadline=now + seconds,
            sent_at=now,
        )

    def handoff(
        self,
        prompt: Prompt | None = None,
        *,
        model: str = MODEL,
        sampling: Sampling | None = None,
        use_cache: bool = True,
        seconds: float = 20.0,
    ) -> GatewayHandoff:
        asked = prompt or question()
        chat = ChatRequest(
            model=model, messages=asked.messages, sampling=sampling or Sampling(), use_cache=use_cache
        )
        return GatewayHandoff(envelope=self.envelope(seconds=seconds), chat=chat, prompt=asked)

    async def ask(self, handoff: GatewayHandoff | None = None, **request: Any) -> Exchange:
        """One request from its handoff to its last frame."""
        handoff = handoff or self.handoff(**request)
        return await self.listen(await self.send(handoff))

    async def send(self, handoff: GatewayHandoff) -> str:
        request_id = handoff.envelope.request_id
        self._asked[request_id] = (self.inbox.open(request_id), time.perf_counter())
        await hand_on(
            self.sender,
            Clock(),
            subjects.gateway(request_id),
            handoff.encode,
            to="llm_gateway",
            deadline=handoff.envelope.deadline,
            ack_seconds=20,
        )
        return request_id

    async def fill(self, *engines: FakeEngine) -> list[str]:
        """As many requests as these can hold, each at its place before the next is sent: an engine takes from
        its queue in its next step, and two that come before that step would find a queue of one full."""
        held: list[str] = []

        def all_placed() -> bool:
            waits_in_vain = any(e.waiting and len(e.running) < e.script.max_running for e in engines)
            return not waits_in_vain and sum(len(e.running) + len(e.waiting) for e in engines) == len(held)

        for _ in range(sum(each.script.max_running + each.script.max_waiting for each in engines)):
            held.append(await self.send(self.handoff()))
            await eventually(all_placed)
        return held

    async def listen(
        self, request_id: str, until: Callable[[Exchange], bool] | None = None, into: Exchange | None = None
    ) -> Exchange:
        """Until the request is over, or `until` holds."""
        queue, started = self._asked[request_id]
        heard = into or Exchange(request_id)
        async with asyncio.timeout(60):
            while heard.end is None and heard.error is None:
                match await queue.get():
                    case Prologue() as prologue:
                        heard.prologues.append(prologue)
                    case Data() as data:
                        heard.take(data)
                    case End() as end:
                        heard.end = end
                    case Error(error=error):
                        heard.error = error
                    case _:
                        pass
                heard.seconds = time.perf_counter() - started
                if until and until(heard):
                    return heard
        queue.close()
        return heard

    async def lose_store(self) -> None:
        assert self._store
        await self._store.lose()

    async def find_store(self) -> None:
        assert self._store
        await self._store.find()

    async def cancel(self, request_id: str, reason: Any = "client_disconnected") -> None:
        cancel = Cancel(request_id=request_id, reason=reason)
        await self.edge.bus.publish(subjects.cancel(request_id), cancel.encode())


class _Store:
    """The stream AFTER, which a test may take away."""

    def __init__(self, admin: NatsBus) -> None:
        self._admin = admin

    async def find(self) -> None:
        await self._admin.jetstream.add_stream(name=subjects.STREAM_AFTER, subjects=[subjects.AFTER_ALL])

    async def lose(self) -> None:
        await self._admin.jetstream.delete_stream(subjects.STREAM_AFTER)


@asynccontextmanager
async def nats_stage(nats: RestrictedNats) -> AsyncGenerator[Stage, None]:
    """Each service with a connection and permissions of its own, and the stream that keeps the records."""
    admin = await nats.connect()
    store = _Store(admin)
    await store.find()
    try:
        async with Stage(nats.connect, store) as stage:
            yield stage
    finally:
        await store.lose()
        await admin.close()
