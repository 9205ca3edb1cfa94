from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.kv_events import KvChange, KvEvents
from baton_inference_router.prefix_index import PrefixIndex, block_keys
from tests.support.relay import HandClock

A, B = "engine_worker-a", "engine_worker-b"
KEYS = [(number << 192) + 1 for number in range(1, 9)]
HASHES = [f"{key:064x}" for key in KEYS]
CHAIN_KEYS = block_keys(HASHES)


@pytest.fixture
def time() -> HandClock:
    return HandClock()


@pytest.fixture
def index(time: HandClock) -> PrefixIndex:
    return PrefixIndex(time.clock, max_blocks=1000)


def beat(replica: str = A, epoch: str = "e1", seq: int = 0, state: Any = "ready") -> ReplicaHeartbeat:
    return ReplicaHeartbeat(
        replica=replica, model="m", state=state, sent_at=1.0, kv_epoch=epoch, kv_next_seq=seq
    )


def cleared() -> KvChange:
    return KvChange(kind="cleared")


def stored(*hashes: str) -> KvChange:
    return KvChange(kind="stored", block_hashes=hashes)


def removed(*hashes: str) -> KvChange:
    return KvChange(kind="removed", block_hashes=hashes)


def told(seq: int, *changes: KvChange, replica: str = A, epoch: str = "e1") -> KvEvents:
    return KvEvents(replica=replica, epoch=epoch, seq=seq, changes=changes)


def synced(index: PrefixIndex, replica: str = A, *hashes: str) -> None:
    index.heard(beat(replica))
    index.told(told(0, cleared(), stored(*hashes), replica=replica))


def test_replicas_that_join_take_their_share_from_those_that_have_more_than_two(time: HandClock) -> None:
    index = PrefixIndex(time.clock, max_blocks=8)
    synced(index, A, *HASHES)
    synced(index, B, *HASHES)
    assert (index.num_cached(A, CHAIN_KEYS), index.num_cached(B, CHAIN_KEYS)) == (8, 4)
    synced(index, "engine_worker-c", *HASHES)  # a share is 2 now: 8 are too many, 4 are not
    assert not index.is_synced(A)
    assert index.heard(beat(A))
    synced(index, A, *HASHES)
    assert [index.num_cached(each, CHAIN_KEYS) for each in (A, B, "engine_worker-c")] == [2, 4, 2]


def test_64_bits_of_a_hash_are_kept() -> None:
    assert block_keys(["0123456789abcdef" + "f" * 48]) == [0x0123456789ABCDEF]


def test_a_replica_is_asked_until_it_has_told_all(index: PrefixIndex) -> None:
    assert index.heard(beat())
    assert index.heard(beat())
    assert not index.told(told(7, stored(HASHES[0])))  # a part of what is not known: left
    assert index.num_cached(A, CHAIN_KEYS) == 0
    assert not index.told(told(8, cleared(), stored(*HASHES[:3])))
    assert not index.heard(beat(seq=9))
    assert (index.num_cached(A, CHAIN_KEYS), index.num_cached(B, CHAIN_KEYS)) == (3, 0)


def test_changes_are_applied_in_order(index: PrefixIndex) -> None:
    synced(index, A, *HASHES[:2])
    index.told(told(1, stored(*HASHES[2:6]), removed(HASHES[5])))
    assert index.num_cached(A, CHAIN_KEYS) == 5
    index.told(told(2, cleared()))
    assert index.num_cached(A, CHAIN_KEYS) == 0
    assert index.is_synced(A)


def test_a_gap_empties_it_and_asks(index: PrefixIndex) -> None:
    synced(index, A, *HASHES)
    assert index.told(told(2, removed(HASHES[0])))
    assert index.num_cached(A, CHAIN_KEYS) == 0
    assert index.heard(beat(seq=3))
    index.told(told(9, cleared(), stored(*HASHES[1:])))
    assert index.num_blocks == 7


def test_a_lost_last_message_shows_at_the_second_heartbeat(index: PrefixIndex) -> None:
    """One heartbeat may overtake the events that it counts."""
    synced(index, A, *HASHES)
    assert not index.heard(beat(seq=2))
    assert index.num_cached(A, CHAIN_KEYS) == 8
    assert index.heard(beat(seq=2))
    assert index.num_cached(A, CHAIN_KEYS) == 0


def test_a_heartbeat_that_overtook_its_events_changes_nothing(index: PrefixIndex) -> None:
    synced(index, A, *HASHES[:7])
    assert not index.heard(beat(seq=2))
    assert not index.told(told(1, stored(HASHES[7])))
    assert not index.heard(beat(seq=2))
    assert index.num_cached(A, CHAIN_KEYS) == 8


def test_another_epoch_is_another_cache(index: PrefixIndex) -> None:
    synced(index, A, *HASHES)
    index.expect(A, CHAIN_KEYS)
    assert index.told(told(1, stored(HASHES[0]), epoch="e2"))
    index.told(told(0, cleared(), epoch="e2"))
    assert index.num_cached(A, CHAIN_KEYS) == 0

    synced(index, B, *HASHES)
    assert index.heard(beat(B, epoch="e2"))
    assert index.num_cached(B, CHAIN_KEYS) == 0


@pytest.mark.parametrize("last", [beat(state="gone"), beat(epoch="")])
def test_nothing_is_kept_of_one_that_is_gone_or_tells_nothing(
    index: PrefixIndex, last: ReplicaHeartbeat
) -> None:
    synced(index, A, *HASHES)
    assert not index.heard(last)
    assert (index.num_replicas, index.num_cached(A, CHAIN_KEYS)) == (0, 0)


def test_what_was_sent_there_counts_for_ten_seconds(index: PrefixIndex, time: HandClock) -> None:
    synced(index, A, *HASHES[:2])
    index.expect(A, CHAIN_KEYS[:6])
    assert index.num_cached(A, CHAIN_KEYS) == 6
    time.move(9.9)
    assert index.num_cached(A, CHAIN_KEYS) == 6
    time.move(0.2)
    assert index.num_cached(A, CHAIN_KEYS) == 2


def test_a_refused_request_leaves_nothing_behind(index: PrefixIndex) -> None:
    synced(index, A, *HASHES[:2])
    index.expect(A, CHAIN_KEYS)
    index.expect_no_more(A, CHAIN_KEYS)
    assert index.num_cached(A, CHAIN_KEYS) == 2


def test_all_replicas_together_stay_under_the_bound() -> None:
    index = PrefixIndex(HandClock().clock, max_blocks=8)
    synced(index, A)
    index.heard(beat(B))
    index.told(told(1, stored(*HASHES)))
    assert index.num_blocks == 4
    assert index.num_cached(A, CHAIN_KEYS) == 4


def test_no_hash_is_an_error_not_a_block(index: PrefixIndex) -> None:
    index.heard(beat())
    with pytest.raises(ValueError, match="invalid literal"):
        index.told(told(0, cleared(), stored("not a hash at all")))


@given(
    st.lists(st.tuples(st.sampled_from(["stored", "removed", "cleared"]), st.integers(0, 7)), max_size=40),
    st.sets(st.integers(0, 39)),
)
def test_with_any_messages_lost_it_never_names_a_block_that_is_gone(
    steps: list[tuple[Any, int]], lost: set[int]
) -> None:
    """Against a plain set: after each message that arrives, what the index has is in the cache."""
    index = PrefixIndex(HandClock().clock, max_blocks=1000)
    synced(index, A)
    cache: set[int] = set()
    for number, (kind, block) in enumerate(steps, start=1):
        if kind == "cleared":
            cache.clear()
        elif kind == "stored":
            cache.add(block)
        else:
            cache.discard(block)
        hashes = () if kind == "cleared" else (HASHES[block],)
        if number in lost:
            continue
        index.told(told(number, KvChange(kind=kind, block_hashes=hashes)))
        known = {block for block in range(8) if index.num_cached(A, [CHAIN_KEYS[block]])}
        assert known <= cache
        assert known == cache or not index.is_synced(A) or kind == "cleared"


def test_events_that_can_not_be_read_are_a_gap(index: PrefixIndex) -> None:
    synced(index, A, *HASHES[:2])
    with pytest.raises(ValueError, match="invalid literal"):
        index.told(told(1, stored("no hash")))
    assert index.told(told(2, stored(HASHES[2])))
    assert index.num_cached(A, CHAIN_KEYS) == 0


class CacheModel:
    """A plain cache with its own journal: epochs, numbers, all told anew when asked."""

    def __init__(self) -> None:
        self.epochs, self.seq, self.blocks = 1, 0, set[int]()

    @property
    def epoch(self) -> str:
        return f"e{self.epochs}"

    def change(self, *changes: KvChange) -> KvEvents:
        self.seq += 1
        return told(self.seq - 1, *changes, epoch=self.epoch)

    def store(self, block: int) -> KvEvents:
        self.blocks.add(block)
        return self.change(stored(HASHES[block]))

    def remove(self, block: int) -> KvEvents:
        self.blocks.discard(block)
        return self.change(removed(HASHES[block]))

    def purge(self) -> KvEvents:
        self.blocks.clear()
        return self.change(cleared())

    def tell_all(self) -> KvEvents:
        return self.change(cleared(), stored(*(HASHES[block] for block in sorted(self.blocks))))

    def restart(self) -> None:
        self.epochs, self.seq, self.blocks = self.epochs + 1, 0, set[int]()


class IndexBesideItsModel(RuleBasedStateMachine):
    """Events arrive in any order, late, twice or never; between them heartbeats. Whatever happened: what is
    not known to be right is empty, and three heartbeats later all is right again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex(HandClock().clock, max_blocks=1000)
        self.cache = CacheModel()
        self.under_way = list[KvEvents]()
        self.index.heard(self.beat())

    def beat(self) -> ReplicaHeartbeat:
        return beat(epoch=self.cache.epoch, seq=self.cache.seq)

    @property
    def known(self) -> set[int]:
        return {block for block in range(8) if self.index.num_cached(A, [CHAIN_KEYS[block]])}

    @rule(block=st.integers(0, 7))
    def store(self, block: int) -> None:
        self.under_way.append(self.cache.store(block))

    @rule(block=st.integers(0, 7))
    def remove(self, block: int) -> None:
        self.under_way.append(self.cache.remove(block))

    @rule()
    def purge(self) -> None:
        self.under_way.append(self.cache.purge())

    @rule()
    def restart(self) -> None:
        self.cache.restart()

    @rule(data=st.data(), stays=st.booleans())
    def one_arrives(self, data: st.DataObject, stays: bool) -> None:
        if self.under_way:
            at = data.draw(st.integers(0, len(self.under_way) - 1))
            events = self.under_way[at] if stays else self.under_way.pop(at)
            self.index.told(events)

    @rule()
    def all_arrive_in_order(self) -> None:
        for events in self.under_way:
            self.index.told(events)
        self.under_way.clear()

    @rule()
    def some_are_lost(self) -> None:
        self.under_way.clear()

    @rule()
    def heartbeat(self) -> None:
        if self.index.heard(self.beat()):
            self.under_way.append(self.cache.tell_all())

    @rule()
    def gone(self) -> None:
        self.index.heard(beat(state="gone"))
        assert self.index.num_replicas == 0
        self.index.heard(self.beat())

    @rule()
    def calm(self) -> None:
        """Nothing happens but what a living replica does: it beats, and tells all when asked."""
        self.all_arrive_in_order()
        for _ in range(3):
            self.heartbeat()
            self.all_arrive_in_order()
        assert self.index.is_synced(A)
        assert self.known == self.cache.blocks

    @invariant()
    def empty_or_synced(self) -> None:
        assert self.index.is_synced(A) or not self.known


TestIndexBesideItsModel = IndexBesideItsModel.TestCase
TestIndexBesideItsModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
