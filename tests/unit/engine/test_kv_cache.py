from __future__ import annotations

import hashlib
from array import array

import pytest

from baton_engine.kv_cache import BlockPool, KVCache, block_hash, root_hash
from baton_engine.request import Request
from baton_engine.sampling_params import SamplingParams


def request(token_ids: list[int], request_id: str = "a", salt: str = "") -> Request:
    return Request(request_id, tuple(token_ids), SamplingParams(), max_tokens=8, seed=0, cache_salt=salt)


def compute_all(cache: KVCache, one: Request) -> None:
    before, one.num_computed_tokens = one.num_computed_tokens, one.num_tokens
    cache.publish(one, before)


def test_the_chain_is_sha256_over_parent_and_tokens() -> None:
    root = hashlib.sha256(b"baton.kv.v1" + b"tenant").digest()
    tokens = [1, 2, 3, 151_000]
    assert root_hash("tenant") == root
    assert block_hash(root, tokens) == hashlib.sha256(root + array("q", tokens).tobytes()).digest()


def test_a_second_request_finds_the_full_blocks_of_the_first() -> None:
    cache = KVCache(num_blocks=8, block_size=4)
    first, second = request(list(range(10)), "a"), request([*range(8), 99, 98], "b")
    assert cache.admit(first)
    compute_all(cache, first)
    assert cache.admit(second)
    assert second.num_computed_tokens == 8
    assert second.block_ids[:2] == first.block_ids[:2]
    assert cache.pool.counts() == (8, 4, 0, 4)


def test_a_hit_leaves_the_last_token_to_be_computed() -> None:
    cache = KVCache(num_blocks=8, block_size=4)
    first = request(list(range(8)))
    assert cache.admit(first)
    compute_all(cache, first)
    cache.free(first)
    again = request(list(range(8)), "b")
    assert cache.admit(again)
    assert again.num_computed_tokens == 4


def test_other_salt_or_other_beginning_shares_nothing() -> None:
    cache = KVCache(num_blocks=16, block_size=4)
    first = request(list(range(12)), "a", salt="x")
    assert cache.admit(first)
    compute_all(cache, first)
    for other in (request(list(range(12)), "b", salt="y"), request([7, *range(1, 12)], "c", salt="x")):
        assert cache.admit(other)
        assert other.num_computed_tokens == 0


def test_prefix_caching_can_be_off() -> None:
    cache = KVCache(num_blocks=16, block_size=4, enable_prefix_caching=False)
    first, again = request(list(range(12)), "a"), request(list(range(12)), "b")
    assert cache.admit(first)
    compute_all(cache, first)
    assert cache.admit(again)
    assert again.num_computed_tokens == 0
    cache.free(first)
    cache.free(again)
    assert cache.pool.counts() == (16, 16, 0, 0)


def test_the_tail_of_a_prefix_is_evicted_before_its_head() -> None:
    cache = KVCache(num_blocks=3, block_size=4)
    first = request(list(range(12)))
    assert cache.admit(first)
    compute_all(cache, first)
    cache.free(first)
    assert cache.pool.counts() == (3, 0, 3, 0)
    assert cache.pool.take(1) is not None
    again = request(list(range(12)), "b")
    assert not cache.admit(again)  # two blocks are found, the third is taken
    assert cache.pool.find(again.block_hashes) == cache.pool.find(again.block_hashes[:2])
    assert len(cache.pool.find(again.block_hashes)) == 2


def test_the_least_recently_released_prefix_goes_first() -> None:
    cache = KVCache(num_blocks=2, block_size=4)
    old, new = request([1] * 4, "old"), request([2] * 4, "new")
    for one in (old, new):
        assert cache.admit(one)
        compute_all(cache, one)
    cache.free(old)
    cache.free(new)
    cache.pool.take(1)
    assert cache.pool.find(old.block_hashes) == []
    assert len(cache.pool.find(new.block_hashes)) == 1


def test_an_admission_that_fails_changes_nothing() -> None:
    cache = KVCache(num_blocks=4, block_size=4)
    first = request(list(range(8)))
    assert cache.admit(first)
    compute_all(cache, first)
    cache.free(first)
    before = cache.pool.counts()
    too_long = request(list(range(20)), "b")  # two cached blocks, and three more that are not there
    assert not cache.admit(too_long)
    assert cache.pool.counts() == before == (4, 2, 2, 0)
    assert too_long.block_ids == []


def test_the_reserve_is_left_alone() -> None:
    cache = KVCache(num_blocks=4, block_size=4)
    assert not cache.admit(request(list(range(12))), reserve=2)
    assert cache.admit(request(list(range(12))), reserve=1)


def test_two_copies_of_one_content_stay_two_blocks() -> None:
    cache = KVCache(num_blocks=4, block_size=4)
    first, second = request([5] * 4, "a"), request([5] * 4, "b")
    for one in (first, second):
        assert cache.admit(one)
    for one in (first, second):
        compute_all(cache, one)
    cache.free(second)
    assert cache.pool.counts() == (4, 3, 0, 1)  # the private copy became free, not cached
    cache.free(first)
    assert cache.pool.counts() == (4, 3, 1, 0)
    cache.pool.check()


def test_forgetting_the_cache_frees_what_nobody_holds() -> None:
    cache = KVCache(num_blocks=4, block_size=4)
    gone, held = request([1] * 8, "gone"), request([2] * 4, "held")
    for one in (gone, held):
        assert cache.admit(one)
        compute_all(cache, one)
    cache.free(gone)
    assert cache.pool.forget_cached() == 2
    assert cache.pool.counts() == (4, 3, 0, 1)


def test_a_double_release_is_noticed() -> None:
    pool = BlockPool(2)
    taken = pool.take(1)
    assert taken is not None
    pool.release(taken)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(taken)
