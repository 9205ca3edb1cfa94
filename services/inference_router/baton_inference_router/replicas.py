"""The table of replicas: who is alive, how loaded each is, and which seats this router has reserved there.

A seat counts from the dispatch until the replica's own numbers contain it: the acknowledgement with its queue
length, or the first heartbeat after the acceptance. Its tokens count from the dispatch on too and are worked
off at the replica's measured speed; a heartbeat says anew how many are left. A refused or failed dispatch
gives it back at once. So a seat can't outlive the next heartbeat, and a restarted replica is another instance
with a row of its own: nothing of the old one touches it. A replica whose heartbeats are late is judged by its
last word and what we sent it since.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Collection
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
_FRESH_SECONDS = 0.01
"""What a replica works off in so little time changes no choice, and of a thousand most need no new look."""
_BLOCK_SIZE_TOKENS = 16


@dataclass(eq=False)
class Seat:
    """One reservation. Owned by the handler that made it until it is accepted, then by the row."""

    row: _Row
    tokens: int = 0
    """Of its prompt, that the replica will have to compute."""
    accepted: bool = False
    counted: bool = False
    """The replica's own count of requests contains it."""

    def __post_init__(self) -> None:
        self.row.seats.add(self)
        self.row.add_tokens(self.tokens)

    @property
    def replica(self) -> str:
        return self.row.heartbeat.replica

    def accept(self, ack: Ack) -> None:
        """The replica holds the request; its queue length, if it said one, contains this seat."""
        self.accepted = True
        self.row.learn(ack)
        self.row.candidate = None

    def refuse(self, ack: Ack) -> None:
        self.release()
        self.row.learn(ack)
        self.row.candidate = None

    def release(self) -> None:
        """Gives back a seat that was not accepted, once; does nothing to one that was."""
        if not self.accepted and self in self.row.seats:
            self.row.seats.discard(self)
            self.row.add_tokens(-self.tokens)
            self.row.candidate = None


@dataclass(eq=False)
class _Row:
    clock: Clock
    heartbeat: ReplicaHeartbeat
    seen: float = 0.0
    """Monotonic seconds of the last heartbeat."""
    running: int = 0
    waiting: int = 0
    counted_at: float = 0.0
    """Monotonic seconds of these two."""
    seats: set[Seat] = field(default_factory=set[Seat])
    dead: bool = False
    """Nobody answered there; its next heartbeat brings it back."""
    cool_until: float = 0.0
    last_pick: int = 0
    ready_since: float = math.inf
    """Monotonic seconds, from what it said when it was first heard as ready."""
    candidate: Candidate | None = None
    """Made before; None after every change."""
    candidate_until: float = math.inf
    """Monotonic seconds; forever if time alone changes nothing in it."""
    _tokens: float = 0.0
    """Of prompts, that were not computed at `_tokens_at`."""
    _tokens_at: float = 0.0

    def __post_init__(self) -> None:
        self.hear(self.heartbeat)

    def hear(self, beat: ReplicaHeartbeat) -> None:
        """Its numbers contain every seat that was accepted before."""
        self.heartbeat, self.seen, self.dead = beat, self.clock.monotonic(), False
        self.running, self.waiting, self.counted_at = beat.num_running, beat.num_waiting, self.seen
        self.seats = {seat for seat in self.seats if not seat.accepted}
        self._tokens = beat.waiting_tokens + beat.prefill_tokens + sum(seat.tokens for seat in self.seats)
        self._tokens_at = self.seen
        self.candidate = None
        if beat.state == "ready" and self.ready_since == math.inf:
            self.ready_since = self.seen - _seconds_ready(beat)

    def learn(self, ack: Ack) -> None:
        if ack.waiting is None or ack.running is None:
            return
        self.waiting, self.running, self.counted_at = ack.waiting, ack.running, self.clock.monotonic()
        for seat in self.seats:
            seat.counted = seat.counted or seat.accepted

    def add_tokens(self, tokens: int) -> None:
        """From now on: what was idle until now has worked nothing of it off."""
        now = self.clock.monotonic()
        self._tokens, self._tokens_at = max(0.0, self.tokens_left(now) + tokens), now

    def tokens_left(self, now: float) -> float:
        """Of prompts: what it told and what was sent since, less what it has computed meanwhile."""
        if not self._tokens:
            return 0.0
        computed = (now - self._tokens_at) * self.heartbeat.prefill_tokens_per_second
        return max(0.0, self._tokens - computed)

    def num_ended(self, now: float) -> float:
        """Of those that it counted, by its rate of late: a heartbeat is older than many an answer is long."""
        return min(self.running, (now - self.counted_at) * self.heartbeat.requests_per_second)

    @property
    def num_reserved(self) -> int:
        return sum(not seat.counted for seat in self.seats)

    @property
    def capacity(self) -> int:
        return self.heartbeat.max_running + self.heartbeat.max_waiting


class ReplicaTable:
    def __init__(
        self,
        clock: Clock,
        stale_seconds: float,
        ramp_seconds: float = 0.0,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        """`on_lost` hears of each replica that is gone, silent or dead."""
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._ramp_seconds = ramp_seconds
        self._on_lost = on_lost
        self._rows: dict[str, _Row] = {}
        self._picks = itertools.count(1)

    def on_message(self, message: BusMessage) -> ReplicaHeartbeat | None:
        """What it said, if it could be read."""
        try:
            heartbeat = ReplicaHeartbeat.decode(message.payload)
        except MalformedMessage as error:
            log.warning("heartbeat ignored: %s", error)
            return None
        self.on_heartbeat(heartbeat)
        return heartbeat

    def on_heartbeat(self, heartbeat: ReplicaHeartbeat) -> None:
        if heartbeat.state == "gone":
            self._forget(heartbeat.replica)
            return
        row = self._rows.get(heartbeat.replica)
        if row is None:
            self._rows[heartbeat.replica] = _Row(self._clock, heartbeat)
            return
        if heartbeat.sent_at < row.heartbeat.sent_at:
            return
        if self._clock.monotonic() - row.seen > _FROZEN_SECONDS:
            row.cool_until = 0.0  # it did not answer because it was silent as a whole, and it speaks again
        row.hear(heartbeat)

    def candidates(self, model: str, avoid: Collection[str] = ()) -> list[Candidate]:
        """Replicas that may be given a request for `model` now, full ones included."""
        now = self._clock.monotonic()
        return [
            row.candidate if row.candidate and now < row.candidate_until else self._candidate(row, now)
            for row in self._living(model)
            if row.heartbeat.state == "ready"
            and not row.dead
            and row.cool_until <= now
            and row.heartbeat.replica not in avoid
        ]

    def of_model(self, model: str) -> list[ReplicaHeartbeat]:
        """The last words of all replicas of `model` that are not stale, whatever their state."""
        return [row.heartbeat for row in self._living(model) if not row.dead]

    def reserve(self, replica: str, tokens: int = 0) -> Seat:
        row = self._rows[replica]
        row.last_pick = next(self._picks)
        row.candidate = None
        return Seat(row, tokens)

    def mark_dead(self, replica: str) -> None:
        if row := self._rows.get(replica):
            row.dead = True
            self._tell_lost(replica)

    def cool_down(self, replica: str, seconds: float) -> None:
        if row := self._rows.get(replica):
            row.cool_until = self._clock.monotonic() + seconds

    @property
    def num_reserved(self) -> int:
        return sum(row.num_reserved for row in self._rows.values())

    def forget_silent(self) -> None:
        oldest = self._clock.monotonic() - self._stale_seconds
        for replica in [name for name, row in self._rows.items() if row.seen < oldest]:
            self._forget(replica)

    def _living(self, model: str) -> list[_Row]:
        self.forget_silent()
        return [row for row in self._rows.values() if row.heartbeat.model == model]

    def _forget(self, replica: str) -> None:
        if self._rows.pop(replica, None):
            self._tell_lost(replica)

    def _tell_lost(self, replica: str) -> None:
        if self._on_lost:
            self._on_lost(replica)

    def _candidate(self, row: _Row, now: float) -> Candidate:
        """Made anew after a change; else only what time changes is."""
        candidate = row.candidate = row.candidate or _candidate_of(row)
        candidate.waiting_tokens = round(row.tokens_left(now))
        candidate.ended = row.num_ended(now)
        candidate.ramp = self._ramp(row, now)
        stands_still = candidate.ramp >= 1 and not candidate.waiting_tokens and not row.running
        row.candidate_until = math.inf if stands_still else now + _FRESH_SECONDS
        return candidate

    def _ramp(self, row: _Row, now: float) -> float:
        return min(1.0, (now - row.ready_since) / self._ramp_seconds) if self._ramp_seconds else 1.0


def _seconds_ready(beat: ReplicaHeartbeat) -> float:
    """By its own clock alone: ours may differ, and we may have heard it late or begun after it."""
    return max(0.0, beat.sent_at - beat.counting_since)


def _candidate_of(row: _Row) -> Candidate:
    """Without what changes with time alone."""
    beat = row.heartbeat
    finished = beat.finished_requests_total
    free_blocks = beat.kv_blocks_total - beat.kv_blocks_held
    return Candidate(
        replica=beat.replica,
        running=row.running,
        waiting=row.waiting,
        reserved=row.num_reserved,
        capacity=row.capacity,
        max_waiting_tokens=beat.max_waiting_tokens,
        kv_usage=beat.kv_usage,
        kv_free_tokens=free_blocks * _BLOCK_SIZE_TOKENS if beat.kv_blocks_total else None,
        last_pick=row.last_pick,
        tokens_per_second=beat.prefill_tokens_per_second,
        answer_tokens=beat.generation_tokens_total / finished if finished else 0.0,
        adapters=frozenset(beat.adapters),
    )
