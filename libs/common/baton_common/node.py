"""A node: one process of a service on the bus, with its state, lease, cancel tree and actors.

Life: starting → ready → draining → gone. A draining node takes nothing new and finishes what it holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from baton_common import leases
from baton_common.bus import Bus
from baton_common.cancels import CancelTree
from baton_common.clock import Clock
from baton_common.discovery import Discovery
from baton_common.errors import BusError
from baton_common.last_words import LastWords
from baton_common.leases import LeaseBoard
from baton_common.span_post import SpanPost
from baton_common.tracing import SpanRecorder
from baton_contracts.envelope import Envelope
from baton_contracts.heartbeats import EmbeddingModel, Lease, State
from baton_contracts.identifiers import new_instance_id
from baton_contracts.subjects import Service

END_SECONDS = 1.0
"""What is supervised has so long to end once it is told to."""


class Inbox(Protocol):
    """What a node starts when it becomes ready and drains at its end: an Actor or a Responder."""

    @property
    def num_held(self) -> int: ...

    async def start(self) -> None: ...

    async def stop_taking(self) -> None: ...

    async def finished(self) -> None: ...


class Node:
    def __init__(self, bus: Bus, service: Service, clock: Clock | None = None) -> None:
        self.bus = bus
        self.service: Service = service
        self.instance = new_instance_id(service)
        self.clock = clock or Clock()
        self.log = logging.getLogger(service)
        self.state: State = "starting"
        self.embeds: EmbeddingModel | None = None
        """Said in the lease, for those who ask what there is."""
        self.books_closed = False
        """Said as the last word, for those who would store in our place what we owe."""
        self.leases = LeaseBoard(bus, self.clock, self.instance)
        self.last_words = LastWords(bus, self.clock)
        self.span_post = SpanPost(bus, self.clock)
        self.cancels = CancelTree(bus, service, self.instance, self.clock)
        self._discovery = Discovery(bus, service, self.instance, self._stats)
        self._actors: list[Inbox] = []
        self._supervised: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.leases.start()
        await self.cancels.start()
        await self._discovery.start()
        self.supervise("the lease", lambda: leases.beat(self.bus, self._lease, self.leases, self.clock))

    def add(self, actor: Inbox) -> None:
        self._actors.append(actor)

    async def become_ready(self) -> None:
        """Call when a request would be answered: actors start to take, and the lease says so."""
        for actor in self._actors:
            await actor.start()
        self.state = "ready"
        await leases.say(self.bus, self._lease())

    def supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Runs `run` for the node's lifetime; when it fails it is started again, later and later."""
        self._supervised.append(asyncio.create_task(_keep_running(name, run, self.log)))

    async def drain(self, seconds: float) -> None:
        """Takes nothing new, waits up to `seconds` for what is held, then leaves the bus' books."""
        self.state = "draining"
        await leases.say(self.bus, self._lease())
        for actor in self._actors:
            await actor.stop_taking()
        try:
            async with asyncio.timeout(seconds):
                for actor in self._actors:
                    await actor.finished()
        except TimeoutError:
            self.log.warning("%d requests were not finished within %.0f s", self.num_held, seconds)

    async def stop(self) -> None:
        for task in self._supervised:
            task.cancel()
        self.state = "gone"
        await leases.say(self.bus, self._lease())
        if self._supervised:  # they end before the bus closes: what it cuts off looks like a failure
            await asyncio.wait(self._supervised, timeout=END_SECONDS)
        await self._discovery.stop()
        await self.cancels.stop()
        await self.leases.stop()

    @property
    def num_held(self) -> int:
        return sum(actor.num_held for actor in self._actors)

    async def publish_spans(self, spans: SpanRecorder, envelope: Envelope) -> None:
        await self.span_post.send(spans.batch(envelope.request_id, envelope.tenant.tenant_id))

    def _lease(self) -> Lease:
        return Lease(
            service=self.service,
            instance=self.instance,
            state=self.state,
            mailbox_depth=self.num_held,
            embeds=self.embeds,
            books_closed=self.state == "gone" and self.books_closed,
            reads_frame_batches=True,
            spans_dropped=self.span_post.num_dropped or None,
        )

    def _stats(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "held": self.num_held,
            "cancellable": self.cancels.num_held,
            "spans_dropped": self.span_post.num_dropped,
        }


async def _keep_running(name: str, run: Callable[[], Awaitable[None]], log: logging.Logger) -> None:
    delay = 0.1
    while True:
        started = asyncio.get_running_loop().time()
        try:
            await run()
        except BusError as error:  # no fault of what runs: it comes back with the bus
            log.warning("%s: %s; starting it again in %.1f s", name, error, delay)
        except Exception:  # supervision: whatever it was, it is told and the work goes on
            log.exception("%s failed; starting it again in %.1f s", name, delay)
        else:
            return
        if asyncio.get_running_loop().time() - started > 30:
            delay = 0.1
        await asyncio.sleep(delay)
        delay = min(delay * 2, 10.0)
