"""The output guardrails' neighbours, played: a gateway that opens a filter, an engine, an edge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from baton_common.bus import Bus, BusMessage
from baton_common.frame_inbox import AnyFrame, FrameInbox, FrameQueue
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_common.vault import Vault, new_key
from baton_contracts import subjects
from baton_contracts.frames import Cancel, Data, End, Error, Prologue, Usage
from baton_contracts.handoffs import Ack, GuardOutHandoff
from baton_contracts.spans import Span, SpanBatch
from baton_output_guardrails.config import OutputConfig
from baton_output_guardrails.settings import Settings
from baton_output_guardrails.wiring import compile_rules, wire
from tests.support.relay import make_envelope, running_node

KEY = new_key()
USAGE = Usage(prompt_tokens=7, cached_tokens=3, completion_tokens=2)
CONFIG = OutputConfig.model_validate({"deny": {"phrases": ["secret plan"]}})


@dataclass
class Bench:
    bus: Bus
    guard: Node
    gateway: Node
    edge: FrameInbox
    engine: FrameOutbox
    cancels: list[Cancel] = field(default_factory=list[Cancel])
    spans: list[Span] = field(default_factory=list[Span])

    async def open(self, values: Mapping[str, str] | None = None) -> Answer:
        """One answer's filter, opened as the gateway does it."""
        envelope = make_envelope(edge="edge_api-1")
        rid = envelope.request_id
        queue = self.edge.open(rid)
        vault = Vault(KEY).seal(rid, values) if values else None
        handoff = GuardOutHandoff(envelope=envelope, gateway=self.gateway.instance, vault=vault)
        ack = Ack.decode(await self.bus.request(subjects.guard_out(rid), handoff.encode(), timeout=5))
        return Answer(self, rid, queue, ack)


@dataclass
class Answer:
    bench: Bench
    rid: str
    queue: FrameQueue
    ack: Ack

    def attempt(self, number: int = 1, sender: FrameOutbox | None = None) -> FrameStream:
        subject = subjects.frames(self.bench.gateway.instance, self.ack.instance, self.rid)
        return (sender or self.bench.engine).open(subject, self.rid, number)

    def prologue(self, **changes: Any) -> Prologue:
        prologue = Prologue(
            request_id=self.rid,
            sender="x",
            seq=0,
            model="m",
            replica="r",
            gateway=self.bench.gateway.instance,
            guard=self.ack.instance,
        )
        return prologue.model_copy(update=changes)

    def data(self, text: str, *token_ids: int) -> Data:
        return Data(request_id=self.rid, sender="x", seq=0, text=text, token_ids=token_ids)

    def end(self, reason: str = "stop") -> End:
        return End.model_validate(
            {"request_id": self.rid, "sender": "x", "seq": 0, "finish_reason": reason, "usage": USAGE}
        ).model_copy(update={"blocks_freed": 4})

    def error(self, *, final: bool, sender: str = "x", code: str = "internal_error") -> Error:
        error = {"code": code, "message": "It broke.", "stop": "engine_worker"}
        return Error.model_validate(
            {"request_id": self.rid, "sender": sender, "error": error, "final": final}
        )

    async def say(self, *texts: str, reason: str = "stop") -> None:
        stream = self.attempt()
        await stream.send(self.prologue())
        for text in texts:
            await stream.send(self.data(text))
        await stream.send(self.end(reason))

    async def next(self) -> AnyFrame:
        async with asyncio.timeout(20):
            return await self.queue.get()

    async def received(self) -> list[AnyFrame]:
        """All frames up to the last one; checks that they are one numbered stream."""
        frames: list[AnyFrame] = []
        while not frames or not isinstance(frames[-1], End | Error):
            frames.append(await self.next())
        assert [frame.seq for frame in frames] == list(range(len(frames)))
        assert {frame.sender for frame in frames} == {self.ack.instance}
        return frames

    async def text(self) -> tuple[str, AnyFrame]:
        frames = await self.received()
        return "".join(frame.text for frame in frames if isinstance(frame, Data)), frames[-1]


@asynccontextmanager
async def guard_bench(bus: Bus | None = None, **settings: Any) -> AsyncIterator[Bench]:
    """Over a memory bus unless one is given."""
    bus = bus or MemoryBus()
    chosen = Settings(vault_key=KEY, **settings)  # pyright: ignore[reportArgumentType]
    async with running_node(bus, "output_guardrails") as guard, running_node(bus, "llm_gateway") as gateway:
        edge = FrameInbox(bus, subjects.reply_all("edge_api-1"))
        engine = FrameOutbox(bus, "engine_worker-1")
        bench = Bench(bus, guard, gateway, edge, engine)
        await edge.start()
        await engine.start()

        def on_cancel(message: BusMessage) -> None:
            bench.cancels.append(Cancel.decode(message.payload))

        def on_trace(message: BusMessage) -> None:
            bench.spans.extend(SpanBatch.decode(message.payload).spans)

        await bus.subscribe(subjects.CANCEL_ALL, on_cancel)
        await bus.subscribe(subjects.TRACE_ALL, on_trace)
        async with wire(chosen, CONFIG, Vault(KEY), compile_rules(CONFIG))(guard, bus):
            await guard.become_ready()
            await gateway.become_ready()
            yield bench
