"""Leases: each process says every half second that it lives; whoever waits for it hears when it doesn't.

Owns: the beat of this process and the board of the others. Silence is not death while we ourselves are
cut off from the bus, while it stands still (our own beat does not come back) or where we did: then
everybody's time starts anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.clock import Clock
from baton_common.errors import BusError
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.heartbeats import LEASE_INTERVAL_SECONDS, LEASE_LOST_AFTER_SECONDS, Lease
from baton_contracts.subjects import Service

log = logging.getLogger(__name__)

STOOD_STILL_SECONDS = 3 * LEASE_INTERVAL_SECONDS
"""So late is our own look, or our own beat on its way back; less than what makes others lost."""

OnLost = Callable[[str], None]


@dataclass(eq=False)
class _Watcher:
    on_lost: OnLost
    on_closed: OnLost


@dataclass
class _Peer:
    seen: float
    lease: Lease | None = None
    watchers: dict[_Watcher, None] = field(default_factory=dict[_Watcher, None])
    """In order; a dictionary, since each request's watch is begun and ended among those of all others."""

    @property
    def has_closed_its_books(self) -> bool:
        return self.lease is not None and self.lease.state == "gone" and self.lease.books_closed


class LeaseBoard:
    """Who is alive. `watch` calls back once when an instance says `gone` or falls silent."""

    def __init__(
        self, bus: Bus, clock: Clock, own: str = "", *, lost_after: float = LEASE_LOST_AFTER_SECONDS
    ) -> None:
        """`own` is the instance whose beats are ours."""
        self._bus = bus
        self._clock = clock
        self._own = own
        self._lost_after = lost_after
        self._peers: dict[str, _Peer] = {}
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(subjects.LEASE_ALL, self._on_message)

    async def stop(self) -> None:
        if self._subscription:
            await self._subscription.unsubscribe()

    def _on_message(self, message: BusMessage) -> None:
        try:
            lease = Lease.decode(message.payload)
        except MalformedMessage as error:
            log.warning("lease ignored: %s", error)
            return
        peer = self._peers.setdefault(lease.instance, _Peer(seen=0))
        peer.seen, peer.lease = self._clock.monotonic(), lease
        if lease.state == "gone":
            self._lose(lease.instance)

    def check(self) -> None:
        """Called at each beat: finds the silent ones."""
        now = self._clock.monotonic()
        if not self._bus.connected or self._hears_nothing(now):
            self.begin_anew()
            return
        for instance in [name for name, peer in self._peers.items() if now - peer.seen > self._lost_after]:
            self._lose(instance)

    def begin_anew(self) -> None:
        """Silence until now proves nothing."""
        now = self._clock.monotonic()
        for instance, peer in self._peers.items():
            if instance != self._own:
                peer.seen = now

    def _hears_nothing(self, now: float) -> bool:
        """Not even what we say ourselves: the bus stands still."""
        own = self._peers.get(self._own)
        return own is not None and now - own.seen > STOOD_STILL_SECONDS

    def _lose(self, instance: str) -> None:
        peer = self._peers.pop(instance)
        closed = peer.has_closed_its_books
        for watcher in tuple(peer.watchers):  # one that ends its watch now must not hide its neighbour
            (watcher.on_closed if closed else watcher.on_lost)(instance)

    def watch(self, instance: str, on_lost: OnLost, on_closed: OnLost | None = None) -> Callable[[], None]:
        """Returns the function that ends the watch. An unknown instance gets its time from now. `on_closed`
        is called instead for one that left with nothing owed."""
        peer = self._peers.setdefault(instance, _Peer(seen=self._clock.monotonic()))
        watcher = _Watcher(on_lost, on_closed or on_lost)
        peer.watchers[watcher] = None

        def unwatch() -> None:
            peer.watchers.pop(watcher, None)

        return unwatch

    def lives(self, instance: str) -> bool:
        """Whether it was heard, and not found silent or gone since."""
        peer = self._peers.get(instance)
        return peer is not None and peer.lease is not None

    def read_batches(self, instances: Sequence[str]) -> bool:
        """Whether each of them has said that it takes several requests' frames in one message."""
        peers = [self._peers.get(name) for name in instances]
        return all(peer and peer.lease and peer.lease.reads_frame_batches for peer in peers)

    @property
    def living(self) -> list[Lease]:
        """The last word of each instance that is there."""
        return [peer.lease for peer in self._peers.values() if peer.lease]

    def ready(self, service: Service) -> list[Lease]:
        """Of those that take requests now."""
        return [lease for lease in self.living if lease.service == service and lease.state == "ready"]

    def ready_instances(self, service: Service) -> list[str]:
        return [lease.instance for lease in self.ready(service)]


async def beat(bus: Bus, current: Callable[[], Lease], board: LeaseBoard, clock: Clock) -> None:
    """Runs for the process's lifetime: tells, then looks. At the same moments as others: see Clock."""
    looked_at = clock.monotonic()
    while True:
        await say(bus, current())
        stood_still = clock.monotonic() - looked_at > STOOD_STILL_SECONDS
        board.begin_anew() if stood_still else board.check()
        looked_at = clock.monotonic()
        await asyncio.sleep(clock.seconds_to_beat(LEASE_INTERVAL_SECONDS))


async def say(bus: Bus, lease: Lease) -> None:
    try:
        await bus.publish(subjects.lease(lease.instance), lease.encode())
    except BusError as error:
        log.debug("lease not sent: %s", error)
