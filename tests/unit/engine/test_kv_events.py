"""Whoever replays the events knows exactly what the cache would find."""

from __future__ import annotations

import logging

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from baton_engine import BlocksRemoved, BlocksStored, CacheCleared, KVEventBatch
from baton_engine.kv_cache import KVCache, block_hash, root_hash
from baton_engine.request import Request
from baton_engine.sampling_params import SamplingParams
from tests.support.block_machine import SETTINGS, Blocks
from tests.support.engine_driver import add, ask, drain
from tests.support.tiny_model import tiny_engine


class Replay:
    """A receiver: the hashes it believes to be cached, and what it was sent."""

    def __init__(self) -> None:
        self.hashes: set[bytes] = set()
        self.batches: list[KVEventBatch] = []

    def __call__(self, batch: KVEventBatch) -> None:
        if self.batches:
            assert batch.epoch == self.batches[-1].epoch
            assert batch.number == self.batches[-1].number + 1
        self.batches.append(batch)
        for event in batch.events:
            match event:
                case BlocksStored(_, block_hashes):
                    assert self.hashes.isdisjoint(block_hashes)
                    self.hashes.update(block_hashes)
                case BlocksRemoved(block_hashes):
                    assert self.hashes.issuperset(block_hashes)
                    self.hashes.difference_update(block_hashes)
                case CacheCleared():
                    self.hashes.clear()


class Replayed(Blocks):
    def __init__(self) -> None:
        super().__init__()
        self.cache = self.scheduler.kv_cache
        self.first = Replay()
        self.cache.on_kv_event(self.first)

    @rule()
    def listen_again(self) -> None:
        """A receiver that lost its state: it is told all, and then goes on."""
        self.first.hashes = {b"nonsense"}
        self.cache.on_kv_event(self.first)

    @invariant()
    def the_replay_is_the_cache(self) -> None:
        self.cache.events.flush()
        assert self.first.hashes == set(self.cache.pool.findable())

    @invariant()
    def what_is_told_can_be_found(self) -> None:
        assert all(self.cache.pool.find([digest]) for digest in self.first.hashes)


TestReplayed = Replayed.TestCase
TestReplayed.settings = settings(SETTINGS, max_examples=40)


def request(token_ids: list[int], name: str = "a", salt: str = "") -> Request:
    return Request(name, tuple(token_ids), SamplingParams(), max_tokens=8, seed=0, cache_salt=salt)


def computed(cache: KVCache, one: Request) -> None:
    assert cache.admit(one)
    before, one.num_computed_tokens = one.num_computed_tokens, one.num_tokens
    cache.publish(one, before)


def test_what_a_step_stores_is_one_chain_with_its_parent() -> None:
    cache, seen = KVCache(8, block_size=4), Replay()
    cache.on_kv_event(seen)
    computed(cache, request(list(range(9)), salt="x"))
    cache.events.flush()
    root = root_hash("x")
    first = block_hash(root, [0, 1, 2, 3])
    second = block_hash(first, [4, 5, 6, 7])
    assert seen.batches[0].events == (CacheCleared(),)
    assert seen.batches[1].events == (BlocksStored(root, (first, second)),)
    assert [(batch.number, batch.block_size) for batch in seen.batches] == [(0, 4), (1, 4)]


def test_eviction_and_clearing() -> None:
    cache, seen = KVCache(3, block_size=4), Replay()
    old = request([1] * 8, "old")
    computed(cache, old)
    cache.on_kv_event(seen)
    assert seen.hashes == set(old.block_hashes)  # known to a listener that came later
    cache.free(old)
    computed(cache, request([2] * 8, "new"))
    cache.events.flush()
    assert seen.batches[1].events[0] == BlocksRemoved((old.block_hashes[1],))
    assert old.block_hashes[0] in seen.hashes
    cache.pool.forget_cached()
    cache.events.flush()
    assert seen.batches[2].events == (BlocksRemoved((old.block_hashes[0],)),)  # the others are held


def test_a_cache_emptied_whole_says_so_in_one_word() -> None:
    cache, seen = KVCache(4, block_size=4), Replay()
    cache.on_kv_event(seen)
    one = request([1] * 12)
    computed(cache, one)
    cache.free(one)
    cache.events.flush()
    cache.pool.forget_cached()
    cache.events.flush()
    assert seen.batches[-1].events == (CacheCleared(),)


def test_one_batch_a_step_and_none_where_nothing_changes() -> None:
    engine, seen = tiny_engine(), Replay()
    engine.core.kv_cache.on_kv_event(seen)
    add(engine, ask("a", list(range(30))))
    drain(engine)
    # 30 of the prompt fill a block; the answer's 2nd and 18th token fill one each; 24 steps in all
    assert [
        sum(len(event.block_hashes) for event in batch.events if isinstance(event, BlocksStored))
        for batch in seen.batches
    ] == [0, 1, 1, 1]
    assert engine.core.stats().steps_total == 24


def test_two_caches_have_two_epochs() -> None:
    assert KVCache(1).events.epoch != KVCache(1).events.epoch


def test_a_listener_that_fails_harms_nobody_and_the_gap_shows(caplog: pytest.LogCaptureFixture) -> None:
    engine, numbers = tiny_engine(), list[int]()

    def fails_once(batch: KVEventBatch) -> None:
        if batch.number == 1:
            raise RuntimeError("the bus is away")
        numbers.append(batch.number)

    engine.core.kv_cache.on_kv_event(fails_once)
    add(engine, ask("a", list(range(30))))
    with caplog.at_level(logging.ERROR):
        assert drain(engine)["a"][-1].finish_reason == "length"
    assert "failed on batch 1" in caplog.text
    assert numbers == [0, 2, 3]


def test_no_listener_no_gathering() -> None:
    cache = KVCache(8, block_size=4)
    computed(cache, request(list(range(8))))
    assert cache.events._pending == []
    seen = Replay()
    cache.on_kv_event(seen)
    cache.on_kv_event(None)
    computed(cache, request(list(range(50, 58)), "b"))
    cache.events.flush()
    assert len(seen.batches) == 1
