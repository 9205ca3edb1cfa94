"""An engine that answers at once: the whole contract of an engine worker, none of its work.

Each token's text is the Unix time in seconds at which it was sent, so a client on the same machine can
tell how long a token took from engine to socket. `python -m bench.instant_engine` runs it beside a relay;
its replica serves BATON_MODEL.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from baton_common.actor import Actor
from baton_common.context import RequestContext
from baton_common.frame_sender import FrameOutbox
from baton_common.intake import InboxLimits
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_common.service import run_service
from baton_common.settings import ServiceSettings, load_settings
from baton_contracts import subjects
from baton_contracts.frames import Data, End, Prologue, Usage
from baton_contracts.handoffs import Ack, EngineHandoff
from baton_contracts.heartbeats import REPLICA_INTERVAL_SECONDS, ReplicaHeartbeat
from baton_contracts.identifiers import subject_token

MODEL = os.environ.get("BATON_MODEL", "smollm2-135m")
TOKEN_SECONDS = float(os.environ.get("BENCH_TOKEN_SECONDS", "0.002"))
"""Pause between two steps, so that each is measured alone."""


class Steps:
    """As an engine's batch: all answers get their next token at the same moment."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TOKEN_SECONDS)
            done, self._next = self._next, asyncio.get_running_loop().create_future()
            done.set_result(None)

    async def next(self) -> None:
        await asyncio.shield(self._next)


class InstantEngine:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._outbox = FrameOutbox(node.bus, node.instance, node.leases.read_batches)
        self._steps = Steps()
        self._served = 0

    async def start(self) -> None:
        await self._outbox.start()
        self._node.supervise("steps", self._steps.run)
        actor = Actor(
            self._node,
            subject=subjects.engine_all(self._node.instance),
            message=EngineHandoff,
            handle=self.handle,
            stop_number=7,
            queue="",
            ack_by_handler=True,
            limits=InboxLimits(concurrency=1024),
        )
        self._node.add(actor)

    async def handle(self, context: RequestContext, message: EngineHandoff) -> None:
        admitted = time.time()
        context.acknowledge(Ack(verdict="held", instance=self._node.instance, waiting=0, running=1))
        rid, attempt = context.request_id, message.envelope.attempt
        stream = self._outbox.open(subjects.frames(message.gateway, message.guard, rid), rid, attempt)
        sender = {"request_id": rid, "sender": self._node.instance, "seq": 0}
        await stream.send(
            Prologue(
                **sender,  # pyright: ignore[reportArgumentType]
                model=MODEL,
                replica=self._node.instance,
                gateway=message.gateway,
                guard=message.guard,
            )
        )
        count = message.work.sampling.max_tokens or 64
        for number in range(count):
            text = f"{time.time():.6f} "
            await stream.send(Data(**sender, text=text, token_ids=(number,)))  # pyright: ignore[reportArgumentType]
            await self._steps.next()
        usage = Usage(prompt_tokens=1, completion_tokens=count)
        await stream.send(End(**sender, finish_reason="length", usage=usage, blocks_freed=1))  # pyright: ignore[reportArgumentType]
        self._outbox.ended(stream)
        self._served += 1
        context.attributes["admitted_at"] = admitted

    async def beat(self) -> None:
        while True:
            beat = ReplicaHeartbeat(
                replica=self._node.instance,
                model=MODEL,
                state="ready",
                sent_at=time.time(),
                max_running=1024,
                max_waiting=1024,
                kv_blocks_total=1024,
                context_length=8192,
                finished_requests_total=self._served,
            )
            await self._node.bus.publish(
                subjects.replica(subject_token(MODEL), self._node.instance), beat.encode()
            )
            await asyncio.sleep(REPLICA_INTERVAL_SECONDS)


@asynccontextmanager
async def wire(node: Node, bus: NatsBus) -> AsyncGenerator[None]:
    engine = InstantEngine(node)
    await engine.start()
    node.supervise("heartbeat", engine.beat)
    yield


if __name__ == "__main__":
    run_service("engine_worker", load_settings(ServiceSettings), wire)
