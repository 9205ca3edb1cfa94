"""Which replica has which prefix cached: a mirror of each cache, made from its numbered events.

Owns the mirrors and their bound. Does no I/O: `told` and `heard` answer whether the replica must be asked to
tell all again. A mirror is right or empty, never guessed: a missing number, another epoch, or a heartbeat
that is further than what arrived empties it until the replica has told all (`cleared` comes first).

What was just sent to a replica counts as cached there for some seconds: like requests of one burst meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from baton_common.clock import Clock
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.kv_events import KvEvents

EXPECTED_SECONDS = 10.0
MAX_EXPECTED = 16_384
"""Blocks of one replica that may be expected at once."""
_HEX_DIGITS = 16
"""64 bits of a hash: among two million blocks any two are alike with a chance of one in ten million, and then
a score is a little wrong, never an answer."""


@dataclass(eq=False)
class _Mirror:
    epoch: str = ""
    next_seq: int = 0
    synced: bool = False
    blocks: set[int] = field(default_factory=set[int])
    expected: dict[int, float] = field(default_factory=dict[int, float])
    """Block → monotonic second until which it counts."""
    must_have: int = 0
    """Number that the heartbeat before the last one announced."""

    def lose_track(self) -> None:
        self.synced = False
        self.blocks.clear()

    def num_cached(self, chain: Sequence[int], now: float) -> int:
        """Blocks of the chain, from its start. A cache evicts tails before heads, so what it holds of a chain
        is a beginning of it: searched by halves."""
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high) // 2
            block = chain[middle]
            if block in self.blocks or self.expected.get(block, 0.0) > now:
                low = middle + 1
            else:
                high = middle
        return low


class PrefixIndex:
    def __init__(self, clock: Clock, max_blocks: int) -> None:
        """`max_blocks`: of all replicas together; each has an equal share, two at most as others join."""
        self._clock = clock
        self._max_blocks = max_blocks
        self._mirrors: dict[str, _Mirror] = {}

    @property
    def num_blocks(self) -> int:
        return sum(len(mirror.blocks) for mirror in self._mirrors.values())

    @property
    def num_replicas(self) -> int:
        return len(self._mirrors)

    def is_synced(self, replica: str) -> bool:
        return replica in self._mirrors and self._mirrors[replica].synced

    def heard(self, beat: ReplicaHeartbeat) -> bool:
        """True: ask it. Two heartbeats in a row must be further than the events: one may overtake them."""
        if beat.state == "gone" or not beat.kv_epoch:
            self.forget(beat.replica)
            return False
        mirror = self._mirrors.get(beat.replica) or self._begin(beat.replica)
        if mirror.synced and (mirror.epoch != beat.kv_epoch or mirror.next_seq < mirror.must_have):
            mirror.lose_track()
        mirror.must_have = beat.kv_next_seq if mirror.synced else 0
        return not mirror.synced

    def told(self, events: KvEvents) -> bool:
        """True: something is missing, ask the replica. Events of one that no heartbeat has named are left."""
        mirror = self._mirrors.get(events.replica)
        if mirror is None:
            return False
        if events.changes and events.changes[0].kind == "cleared":
            if mirror.epoch != events.epoch:
                mirror.expected.clear()
            mirror.lose_track()
            mirror.epoch, mirror.synced = events.epoch, True
        elif not mirror.synced:
            return False  # it was asked, or will be at its next heartbeat
        elif (events.epoch, events.seq) != (mirror.epoch, mirror.next_seq):
            mirror.lose_track()
            return True
        self._apply(mirror, events)
        mirror.next_seq = events.seq + 1  # not for events that could not be read: then the next show a gap
        return False

    def expect(self, replica: str, chain: Iterable[int]) -> None:
        """The replica is about to compute these."""
        mirror = self._mirrors.get(replica)
        if mirror is None:
            return
        until = self._clock.monotonic() + EXPECTED_SECONDS
        for block in chain:
            mirror.expected.pop(block, None)
            mirror.expected[block] = until
        while len(mirror.expected) > MAX_EXPECTED:
            del mirror.expected[next(iter(mirror.expected))]

    def expect_no_more(self, replica: str, chain: Iterable[int]) -> None:
        """It did not take them after all."""
        if mirror := self._mirrors.get(replica):
            for block in chain:
                mirror.expected.pop(block, None)

    def holders(self, replicas: Iterable[str], chain: Sequence[int]) -> dict[str, int]:
        """Who of them has a beginning of the chain, or is about to have it, and how many blocks of it."""
        if not chain:
            return {}
        first, now, mirrors = chain[0], self._clock.monotonic(), self._mirrors
        found: dict[str, int] = {}
        for replica in replicas:
            mirror = mirrors.get(replica)
            if mirror is None or (first not in mirror.blocks and first not in mirror.expected):
                continue  # of a thousand, most
            if num_blocks := mirror.num_cached(chain, now):
                found[replica] = num_blocks
        return found

    def num_cached(self, replica: str, chain: Sequence[int]) -> int:
        return self.holders((replica,), chain).get(replica, 0)

    def forget(self, replica: str) -> None:
        self._mirrors.pop(replica, None)

    def _begin(self, replica: str) -> _Mirror:
        """With one more to share with, who has more than two shares is asked to tell again, and one is kept:
        so not everybody is asked at every newcomer."""
        mirror = self._mirrors[replica] = _Mirror()
        for other in self._mirrors.values():
            if len(other.blocks) > 2 * self._share:
                other.lose_track()
        return mirror

    @property
    def _share(self) -> int:
        return self._max_blocks // max(1, len(self._mirrors))

    def _apply(self, mirror: _Mirror, events: KvEvents) -> None:
        share = self._share
        for change in events.changes:
            if change.kind == "cleared":
                mirror.blocks.clear()
                continue
            changed = block_keys(change.block_hashes)
            if change.kind == "removed":
                mirror.blocks.difference_update(changed)
                for block in changed:
                    mirror.expected.pop(block, None)
                continue
            mirror.blocks.update(changed[: max(0, share - len(mirror.blocks))])


def block_keys(hashes: Sequence[str]) -> list[int]:
    """Hashes in hex as the index keeps them. Raises ValueError for what is no hash."""
    return [int(each[:_HEX_DIGITS], 16) for each in hashes]
