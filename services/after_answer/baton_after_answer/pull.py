"""Taking messages from a JetStream consumer, a batch at a time: none arrives that was not asked for.

Owns the pull protocol over the plain bus: a pull brings what is there, or what comes first, and a status says
that it is over (nats-py's own `fetch` waits until a batch is full or its time is over). Silence and a
reconnect end it too. Knows nothing of what the messages mean.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.errors import BusError
from baton_common.jetstream import API, nanoseconds

_EXPIRES_SECONDS = 2.0
"""So long a pull waits for the first message."""
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
    """One at a time: whoever awaits a pull is the only one to."""

    def __init__(self, bus: Bus, *, stream: str, consumer: str, inbox_prefix: str, batch: int) -> None:
        self._bus = bus
        self._next = f"{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = f"{inbox_prefix}.pull.{secrets.token_hex(8)}"
        self.batch = batch
        """How many are taken at once, at most."""
        self._arrived: deque[Delivery] = deque()
        self._pull_number = 0
        self._owed = 0
        """Messages that the latest pull may still bring."""
        self._asked_at = 0.0
        self._over = asyncio.Event()
        """The latest pull brings nothing more."""
        self._ended_at_once = False
        self._is_woken = False
        self._subscription: Subscription | None = None
        bus.when_back(self._over.set)  # the server forgot the pull with the connection

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(f"{self._inbox}.*", self._on_message)

    async def wait(self) -> bool:
        """Until something has arrived, or `wake`. False when the server ended the pull at once: the caller
        may look whether its stream is there."""
        while not self._arrived and not self._is_woken:
            await self._pull(_EXPIRES_SECONDS)
            if self._ended_at_once and not self._arrived:
                await asyncio.sleep(_PAUSE_SECONDS)
                return False
        return True

    async def fetch(self) -> list[Delivery]:
        """What has arrived and what the queue has now, up to a batch."""
        if len(self._arrived) < self.batch:
            await self._pull(0.0)
        size = min(self.batch, len(self._arrived))
        return [self._arrived.popleft() for _ in range(size)]

    def wake(self) -> None:
        """Nothing is waited for from here on: the service ends."""
        self._is_woken = True
        self._over.set()

    async def close(self) -> None:
        """Nothing new is taken; what has arrived and was not handed out goes back at once."""
        self.wake()
        if self._subscription:
            await self._subscription.unsubscribe()
        while self._arrived:
            await self._arrived.popleft().nak(0.001)

    async def _pull(self, seconds: float) -> None:
        """Returns once it has brought what is there; waits so long for the first message if there is none."""
        self._pull_number += 1
        self._owed = self.batch - len(self._arrived)
        self._over.clear()
        self._ended_at_once = False
        self._asked_at = time.monotonic()
        body = {"batch": self._owed, "no_wait": True, "expires": nanoseconds(seconds)}
        reply = f"{self._inbox}.{self._pull_number}"
        try:
            await self._bus.publish(self._next, json.dumps(body).encode(), reply=reply)
        except BusError:
            if not seconds:
                return  # else the bus may come back meanwhile
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds + _PATIENCE_SECONDS):
                await self._over.wait()

    def _on_message(self, message: BusMessage) -> None:
        if message.reply.startswith("$JS.ACK."):
            self._arrived.append(Delivery(self._bus, message.subject, message.payload, message.reply))
            self._owed -= 1
            if self._owed == 0:
                self._over.set()
        elif message.subject == f"{self._inbox}.{self._pull_number}":  # its status, whatever the reason
            self._ended_at_once = time.monotonic() - self._asked_at < _PAUSE_SECONDS
            self._over.set()
