"""The table of replicas: who is alive, how loaded each is, and which seats this router has reserved there.

A seat counts from the dispatch until the replica's own numbers contain it: the acknowledgement with its queue
length, or the first heartbeat after the acceptance. A refused or failed dispatch gives it back at once. So a
seat can't outlive the next heartbeat, and a restarted replica is another instance with a row of its own:
nothing of the old one touches it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from baton_common.bus import BusMessage
from baton_common.clock import Clock
from baton_contracts.base import MalformedMessage
from baton_contracts.handoffs import Ack
from baton_contracts.heartbeats import REPLICA_INTERVAL_SECONDS, ReplicaHeartbeat
from baton_inference_router.scoring import Candidate

log = logging.getLogger(__name__)

_FROZEN_SECONDS = 4 * REPLICA_INTERVAL_SECONDS
"""A replica that beats later than this had stopped as a whole."""


@dataclass(eq=False)
class Seat:
    """One reservation. Owned by the handler that made it until it is accepted, then by the row."""

    row: _Row
    accepted: bool = False

    @property
    def replica(self) -> str:
        return self.row.heartbeat.replica

    def accept(self, ack: Ack) -> None:
        """The replica holds the request; its queue length, if it said one, contains this seat."""
        self.accepted = True
        if not self.row.learn(ack):
            return
        self.row.drop_accepted()

    def refuse(self, ack: Ack) -> None:
        self.row.seats.discard(self)
        if self.row.learn(ack):
            self.row.drop_accepted()

    def release(self) -> None:
        """Gives back a seat that was not accepted; does nothing to one that was."""
        if not self.accepted:
            self.row.seats.discard(self)


@dataclass(eq=False)
class _Row:
    heartbeat: ReplicaHeartbeat
    seen: float
    """Monotonic seconds of the last heartbeat."""
    running: int
    waiting: int
    seats: set[Seat] = field(default_factory=set[Seat])
    dead: bool = False
    """Nobody answered there; its next heartbeat brings it back."""
    cool_until: float = 0.0
    last_pick: int = 0

    def learn(self, ack: Ack) -> bool:
        if ack.waiting is None or ack.running is None:
            return False
        self.waiting, self.running = ack.waiting, ack.running
        return True

    def drop_accepted(self) -> None:
        self.seats = {seat for seat in self.seats if not seat.accepted}

    @property
    def capacity(self) -> int:
        return self.heartbeat.max_running + self.heartbeat.max_waiting


class ReplicaTable:
    def __init__(self, clock: Clock, stale_seconds: float) -> None:
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._rows: dict[str, _Row] = {}
        self._picks = itertools.count(1)

    def on_message(self, message: BusMessage) -> None:
        try:
            self.on_heartbeat(ReplicaHeartbeat.decode(message.payload))
        except MalformedMessage as error:
            log.warning("heartbeat ignored: %s", error)

    def on_heartbeat(self, heartbeat: ReplicaHeartbeat) -> None:
        if heartbeat.state == "gone":
            self._rows.pop(heartbeat.replica, None)
            return
        now = self._clock.monotonic()
        row = self._rows.get(heartbeat.replica)
        if row is None:
            self._rows[heartbeat.replica] = _Row(heartbeat, now, heartbeat.num_running, heartbeat.num_waiting)
            return
        if heartbeat.sent_at < row.heartbeat.sent_at:
            return
        if now - row.seen > _FROZEN_SECONDS:
            row.cool_until = 0.0  # it did not answer because it was silent as a whole, and it speaks again
        row.heartbeat, row.seen, row.dead = heartbeat, now, False
        row.running, row.waiting = heartbeat.num_running, heartbeat.num_waiting
        row.drop_accepted()

    def candidates(self, model: str, avoid: Collection[str] = ()) -> list[Candidate]:
        """Replicas that may be given a request for `model` now, full ones included."""
        now = self._clock.monotonic()
        return [
            self._candidate(row)
            for row in self._living(model)
            if row.heartbeat.state == "ready"
            and not row.dead
            and row.cool_until <= now
            and row.heartbeat.replica not in avoid
        ]

    def of_model(self, model: str) -> list[ReplicaHeartbeat]:
        """The last words of all replicas of `model` that are not stale, whatever their state."""
        return [row.heartbeat for row in self._living(model) if not row.dead]

    def reserve(self, replica: str) -> Seat:
        row = self._rows[replica]
        row.last_pick = next(self._picks)
        seat = Seat(row)
        row.seats.add(seat)
        return seat

    def mark_dead(self, replica: str) -> None:
        if row := self._rows.get(replica):
            row.dead = True

    def cool_down(self, replica: str, seconds: float) -> None:
        if row := self._rows.get(replica):
            row.cool_until = self._clock.monotonic() + seconds

    @property
    def num_reserved(self) -> int:
        return sum(len(row.seats) for row in self._rows.values())

    def _living(self, model: str) -> list[_Row]:
        oldest = self._clock.monotonic() - self._stale_seconds
        for replica in [name for name, row in self._rows.items() if row.seen < oldest]:
            del self._rows[replica]
        return [row for row in self._rows.values() if row.heartbeat.model == model]

    def _candidate(self, row: _Row) -> Candidate:
        return Candidate(
            replica=row.heartbeat.replica,
            running=row.running,
            waiting=row.waiting,
            reserved=len(row.seats),
            capacity=row.capacity,
            waiting_tokens=row.heartbeat.waiting_tokens,
            kv_usage=row.heartbeat.kv_usage,
            last_pick=row.last_pick,
        )
