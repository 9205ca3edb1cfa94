"""Pieces of a relay for tests: envelopes, chats, nodes over a memory bus, a clock that tests move."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from baton_common.bus import Bus
from baton_common.clock import Clock
from baton_common.node import Node
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import ChatRequest, Message, Part
from baton_contracts.subjects import Service
from tests.support.waiting import eventually

__all__ = ["HandClock", "eventually", "make_chat", "make_envelope", "running_node"]


@dataclass
class HandClock:
    """A clock that stands still until a test moves it."""

    now: float = field(default_factory=time.time)

    def move(self, seconds: float) -> None:
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, monotonic=lambda: self.now)


def make_envelope(
    *, request_id: str | None = None, edge: str = "edge_api-00000000", seconds: float = 30, **changes: object
) -> Envelope:
    now = time.time()
    envelope = Envelope(
        request_id=request_id or new_request_id(),
        run_id="0a1b2c3d",
        tenant=Tenant(tenant_id="acme", team="research", key_id="key_test"),
        edge=edge,
        conversation_id="conv_test",
        deadline=now + seconds,
        sent_at=now,
    )
    return envelope.model_copy(update=changes)


def make_chat(text: str = "Hello", **changes: object) -> ChatRequest:
    chat = ChatRequest(model="smollm2-135m", messages=(Message(role="user", parts=(Part(text=text),)),))
    return chat.model_copy(update=changes)


@asynccontextmanager
async def running_node(bus: Bus, service: Service, *, clock: Clock | None = None) -> AsyncIterator[Node]:
    """A started node; add actors inside the block and call `become_ready`."""
    node = Node(bus, service, clock)
    await node.start()
    try:
        yield node
    finally:
        await node.drain(1)
        await node.stop()
