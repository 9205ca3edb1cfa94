"""Taking messages from a JetStream consumer: one pull request is always open at the server.

Owns the pull protocol over the plain bus: messages arrive as they are stored (nats-py's own `fetch` waits
until a batch is full or its time is over), status messages say that a pull is over, silence makes it ask
again. Knows nothing of what the messages mean.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from dataclasses import dataclass

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.errors import BusError
from baton_common.jetstream import API, nanoseconds

_EXPIRES_SECONDS = 2.0
_PATIENCE_SECONDS = 1.0
"""Beyond the pull's own end: then the server has forgotten it."""
_PAUSE_SECONDS = 0.2
"""Between pulls that the server ends at once: the stream is missing or moving."""


@dataclass(frozen=True)
class Delivery:
    """A message in hand. Whoever takes it answers it with exactly one of ack, nak, term."""

    bus: Bus
    subject: str
    payload: bytes
    reply: str

    @property
    def stored_at(self) -> float:
        """Unix seconds at which the stream took the message in, as its server's clock has it."""
        # $JS.ACK[.domain.account].stream.consumer.times.stream_seq.consumer_seq.NANOSECONDS.pending[.…]
        tokens = self.reply.split(".")
        return int(tokens[7] if len(tokens) == 9 else tokens[9]) / 1e9

    async def ack(self) -> None:
        await self._answer(b"+ACK")

    async def nak(self, delay_seconds: float) -> None:
        """Deliver it again, not before `delay_seconds` are over."""
        await self._answer(b"-NAK " + json.dumps({"delay": nanoseconds(delay_seconds)}).encode())

    async def term(self) -> None:
        """Never deliver it again, though nothing was done with it."""
        await self._answer(b"+TERM")

    async def _answer(self, word: bytes) -> None:
        try:
            await self.bus.publish(self.reply, word)
        except BusError:
            return  # not heard: the server delivers it again, and it is written once


class PullInbox:
    def __init__(self, bus: Bus, *, stream: str, consumer: str, inbox_prefix: str, batch: int) -> None:
        self._bus = bus
        self._next = f"{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = f"{inbox_prefix}.pull.{secrets.token_hex(8)}"
        self.batch = batch
        """How many are taken at once, at most."""
        self._arrived: deque[Delivery] = deque()
        self._news = asyncio.Event()
        self._owed = 0
        """Messages that the open pull may still bring."""
        self._asked_at = 0.0
        self._ended_at_once = False
        self._closed = False
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        self._bus.when_back(self._ask_anew)
        self._subscription = await self._bus.subscribe(self._inbox, self._on_message)

    async def next_batch(self) -> list[Delivery]:
        """What is there, up to a batch, and at least one; empty once the inbox is closed. Returns an empty
        list also when the server ended a pull at once: the caller may look whether its stream is there."""
        while not self._closed and not self._arrived:
            if self._ended_at_once:
                self._ended_at_once = False
                await asyncio.sleep(_PAUSE_SECONDS)
                return []
            await self._wait()
        if self._closed:
            return []
        return self.take()

    def take(self) -> list[Delivery]:
        """What has arrived by now, up to a batch."""
        size = min(self.batch, len(self._arrived))
        return [self._arrived.popleft() for _ in range(size)]

    async def close(self) -> None:
        """Nothing new is taken; what has arrived and was not handed out goes back at once."""
        self._closed = True
        self._news.set()
        if self._subscription:
            await self._subscription.unsubscribe()
        while self._arrived:
            await self._arrived.popleft().nak(0.001)

    @property
    def closed(self) -> bool:
        return self._closed

    async def _wait(self) -> None:
        self._news.clear()  # before asking: what arrives from here on wakes us
        silent = time.monotonic() - self._asked_at > _EXPIRES_SECONDS + _PATIENCE_SECONDS
        if self._owed <= 0 or silent or not self._bus.connected:
            await self._ask()
        try:
            async with asyncio.timeout(_EXPIRES_SECONDS / 4):
                await self._news.wait()
        except TimeoutError:
            return

    async def _ask(self) -> None:
        body = {"batch": self.batch, "expires": nanoseconds(_EXPIRES_SECONDS)}
        self._asked_at = time.monotonic()
        try:
            await self._bus.publish(self._next, json.dumps(body).encode(), reply=self._inbox)
        except BusError:
            self._owed = 0
        else:
            self._owed = self.batch

    def _ask_anew(self) -> None:
        """The server forgot the pull when the connection was lost: its silence need not be waited for."""
        self._owed = 0
        self._news.set()

    def _on_message(self, message: BusMessage) -> None:
        if message.reply.startswith("$JS.ACK."):
            self._owed -= 1
            self._arrived.append(Delivery(self._bus, message.subject, message.payload, message.reply))
        else:  # a status: this pull is over, whatever the reason
            self._owed = 0
            self._ended_at_once = time.monotonic() - self._asked_at < _PAUSE_SECONDS
        self._news.set()
