"""The suite's own hand on the bus: ask, listen, play a neighbour. No runtime of ours is used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from baton_contracts import subjects
from baton_contracts.base import WireModel
from baton_contracts.envelope import Envelope
from baton_contracts.example_request import ENVELOPE
from baton_contracts.frames import Frame, decode_frame
from baton_contracts.handoffs import Ack
from baton_contracts.heartbeats import LEASE_INTERVAL_SECONDS, Lease
from baton_contracts.identifiers import new_request_id
from baton_contracts.subjects import Service

WAIT_SECONDS = 10.0
M = TypeVar("M", bound=WireModel)
Answer = Callable[[Msg], bytes]


class Misfit(AssertionError):
    """The service does not keep the contract; the message says what was wanted and what came."""


class Probe:
    """Plays edge, neighbours and peers under one instance id, `conformance-…`."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.instance = f"conformance-{new_request_id()[:8]}"

    def envelope(self, **changes: object) -> Envelope:
        now = time.time()
        fresh: dict[str, object] = {
            "request_id": new_request_id(),
            "run_id": new_request_id()[:8],
            "edge": self.instance,
            "sent_at": now,
            "deadline": now + 60,
        }
        return ENVELOPE.model_copy(update=fresh | changes)

    async def ask(self, subject: str, payload: bytes, reply: type[M]) -> M:
        try:
            answer = await self.client.request(subject, payload, timeout=WAIT_SECONDS)
        except nats.errors.NoRespondersError:
            raise Misfit(f"nobody listens on {subject}") from None
        except nats.errors.TimeoutError:
            raise Misfit(f"no answer on {subject} within {WAIT_SECONDS:.0f} s") from None
        return reply.decode(answer.data)

    @asynccontextmanager
    async def listening(self, subject: str, answer: Answer | None = None) -> AsyncGenerator[Ear]:
        """Hears everything on `subject`, beside whoever else does; answers if `answer` is given."""
        ear = Ear(subject)

        async def on_message(message: Msg) -> None:
            ear.heard.put_nowait(message)
            if answer and message.reply:
                await message.respond(answer(message))

        subscription = await self.client.subscribe(subject, cb=on_message)
        await self.client.flush()
        await self.client.flush()
        try:
            yield ear
        finally:
            await subscription.unsubscribe()

    async def is_running(self, service: Service) -> bool:
        """Whether any process of it answers on the bus."""
        try:
            await self.client.request(f"$SRV.PING.{service}", b"", timeout=WAIT_SECONDS)
        except nats.errors.NoRespondersError:
            return False
        except nats.errors.TimeoutError:
            raise Misfit(f"{service} is there, but answers no $SRV.PING") from None
        return True

    @asynccontextmanager
    async def in_place_of(self, service: Service, subject: str) -> AsyncGenerator[Part]:
        """Hears what is sent to a neighbour, and holds it if there is none: two would race for it."""
        played = not await self.is_running(service)
        async with self.listening(subject, self.held if played else None) as ear:
            yield Part(ear, played)

    @asynccontextmanager
    async def beating(self) -> AsyncGenerator[None]:
        """Sends the suite's own lease, so that nobody takes it for dead while it plays a neighbour."""
        lease = Lease(service="edge_api", instance=self.instance, state="starting")
        async with self.repeating(subjects.lease(self.instance), lease.encode(), LEASE_INTERVAL_SECONDS):
            yield

    @asynccontextmanager
    async def repeating(self, subject: str, payload: bytes, seconds: float) -> AsyncGenerator[None]:
        """Publishes at once and every `seconds`; what follows is sent after the first time."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                await self.client.publish(subject, payload)

        await self.client.publish(subject, payload)
        await self.client.flush()
        task = asyncio.create_task(repeat())
        try:
            yield
        finally:
            task.cancel()

    def held(self, _message: Msg | None = None) -> bytes:
        return Ack(verdict="held", instance=self.instance).encode()


class Ear:
    def __init__(self, subject: str) -> None:
        self._subject = subject
        self.heard: asyncio.Queue[Msg] = asyncio.Queue()

    async def next(self, what: str) -> Msg:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await self.heard.get()
        except TimeoutError:
            raise Misfit(f"{what}: nothing came on {self._subject} within {WAIT_SECONDS:.0f} s") from None

    async def frames_until_end(self) -> list[Frame]:
        """The frames of one answer, without the unnumbered notes."""
        received: list[Frame] = []
        while not received or received[-1].kind not in ("end", "error"):
            frame = decode_frame((await self.next("the frames of an answer")).data)
            if frame.kind != "held":
                received.append(frame)
        return received

    async def next_where(self, what: str, wanted: Callable[[Msg], bool]) -> Msg:
        while True:
            message = await self.next(what)
            if wanted(message):
                return message


@dataclass(frozen=True)
class Part:
    """A neighbour's place: what is sent there, and whether the suite plays it."""

    ear: Ear
    played: bool


Check = Callable[[Probe], Awaitable[None]]


def expect(condition: bool, sentence: str) -> None:
    if not condition:
        raise Misfit(sentence)
