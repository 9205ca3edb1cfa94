"""The bus as the services see it: a protocol. `nats_bus` is the real one, `memory_bus` the one for tests.

Callbacks are synchronous and must be quick: a subscription delivers serially, so work belongs in a task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BusMessage:
    subject: str
    payload: bytes
    reply: str = ""
    """Subject to answer on; empty if no answer is expected."""


OnMessage = Callable[[BusMessage], None]

SETTLE_SECONDS = 3.0
"""After a reconnect, until whoever is there is back for sure; as long as a lease lasts."""


class Subscription(Protocol):
    async def unsubscribe(self) -> None:
        """Nothing new arrives after this; idempotent."""
        ...


class Bus(Protocol):
    @property
    def connected(self) -> bool: ...

    @property
    def is_settled(self) -> bool:
        """False while the bus is away and for a moment after: who is silent then may not be back yet."""
        ...

    def when_back(self, call: Callable[[], object]) -> None:
        """Calls it each time the bus was lost and has been found again, for as long as the bus lives."""
        ...

    async def publish(self, subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        """At most once. `within`: it may wait so many seconds for what this process publishes next, and
        travels with that. Raises BusUnavailable when not connected."""
        ...

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> bytes:
        """The first answer. Raises NoResponders at once if nobody listens, BusTimeout, BusUnavailable."""
        ...

    async def request_many(self, subject: str, payload: bytes, *, timeout: float, enough: int) -> list[bytes]:
        """Answers of a broadcast, until there are `enough` or `timeout` seconds have passed."""
        ...

    async def subscribe(self, subject: str, on_message: OnMessage, *, queue: str = "") -> Subscription:
        """Returns when the server has it, so nothing published afterwards is missed. Raises BusError when it
        can't be had: the bus was lost on the way."""
        ...

    async def publish_durable(
        self, subject: str, payload: bytes, *, message_id: str, timeout: float = 5
    ) -> None:
        """Returns only when the stream has stored it; the same `message_id` again is stored once.
        Raises BusError when it could not be stored in time."""
        ...

    async def close(self) -> None: ...
