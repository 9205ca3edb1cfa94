"""Who has which KV block. Owns block ids, reference counts, hashes and the free list; knows no tensors.

A block is in exactly one of three places, and `free + cached + held == total` always:

    free    no reference, no hash: its content means nothing
    cached  no reference, a hash: waits to be found by a prefix, or to be evicted
    held    one or more references: in the block table of a running request

    free --grow--> held --publish--> held (hashed) --release--> cached --match--> held
                    └───────────────release (no hash)──────────> free <--evict-- cached

Requests take blocks from `free` first, then evict `cached` ones, least recently released first. A request's
blocks are released last to first, so that the tail of a prefix goes before its head.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from baton_engine.kv_events import KVEventLog, KVListener
from baton_engine.request import Request

ROOT = b"baton.kv.v1"


class BlockCounts(NamedTuple):
    total: int
    free: int
    cached: int
    held: int


def root_hash(salt: str) -> bytes:
    """The parent of a first block: requests of different salts have no block in common."""
    return hashlib.sha256(ROOT + salt.encode()).digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """SHA-256 over the parent's hash and the block's tokens: equal hashes mean equal whole prefixes."""
    return hashlib.sha256(parent + array("q", token_ids).tobytes()).digest()


def prefix_hashes(token_ids: Sequence[int], block_size: int, salt: str = "") -> list[bytes]:
    """The chain over the full blocks of `token_ids`."""
    parent, chain = root_hash(salt), list[bytes]()
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        parent = block_hash(parent, token_ids[start : start + block_size])
        chain.append(parent)
    return chain


class BlockPool:
    """The blocks themselves: reference counts, the free list and the map from hash to block."""

    def __init__(self, num_blocks: int, events: KVEventLog | None = None) -> None:
        self.num_blocks = num_blocks
        self.events = events or KVEventLog(0)
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest release first
        self._references = [0] * num_blocks
        self._num_held = 0
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._parent_of: dict[bytes, bytes] = {}

    @property
    def num_available(self) -> int:
        return len(self._free) + len(self._cached)

    def counts(self) -> BlockCounts:
        return BlockCounts(self.num_blocks, len(self._free), len(self._cached), self._num_held)

    def take(self, count: int) -> list[int] | None:
        """`count` blocks with one reference each, or None and no change."""
        if count > self.num_available:
            return None
        taken = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in taken:
            self._references[block] = 1
        self._num_held += count
        return taken

    def retain(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self._references[block] == 0:
                del self._cached[block]
                self._num_held += 1
            self._references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            assert self._references[block] > 0, f"block {block} released twice"
            self._references[block] -= 1
            if self._references[block] > 0:
                continue
            self._num_held -= 1
            if block in self._hash_of:
                self._cached[block] = None
            else:
                self._free.append(block)

    def publish(self, block: int, digest: bytes, parent: bytes) -> None:
        """Makes a full, computed block findable. A second block of the same content stays private."""
        if digest not in self._block_of and block not in self._hash_of:
            self._block_of[digest] = block
            self._hash_of[block] = digest
            self._parent_of[digest] = parent
            self.events.stored(digest, parent)

    def findable(self) -> dict[bytes, bytes]:
        """The hash of every block that a prefix can find, with its parent's, oldest first."""
        return dict(self._parent_of)

    def find(self, digests: Iterable[bytes]) -> list[int]:
        """The blocks of the longest known run of `digests` from its start."""
        found: list[int] = []
        for digest in digests:
            block = self._block_of.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def forget_cached(self) -> int:
        """Empties the prefix cache (held blocks keep their hashes); the number of blocks that became free."""
        count = len(self._cached)
        while self._cached:
            self._free.append(self._evict())
        if count and not self._block_of:
            self.events.cleared()
        return count

    def num_unreferenced(self, blocks: Iterable[int]) -> int:
        return sum(1 for block in blocks if self._references[block] == 0)

    def check(self) -> None:
        """Raises AssertionError if a block is in two places or in none."""
        counts = self.counts()
        assert counts.free + counts.cached + counts.held == counts.total, f"blocks lost or doubled: {counts}"
        assert counts.held == sum(1 for references in self._references if references > 0), (
            "held is miscounted"
        )
        idle = set(self._free) | set(self._cached)
        assert len(idle) == counts.free + counts.cached, "a block is twice on the free list"
        assert all(self._references[block] == 0 for block in idle), "a held block is on the free list"
        assert all(block in self._hash_of for block in self._cached), "a cached block has no hash"

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        digest = self._hash_of.pop(block)
        del self._block_of[digest], self._parent_of[digest]
        self.events.removed(digest)
        return block


class KVCache:
    """The block tables of requests, on top of the pool. All methods change nothing when they answer no."""

    def __init__(self, num_blocks: int, block_size: int = 16, enable_prefix_caching: bool = True) -> None:
        self.block_size = block_size
        self.events = KVEventLog(block_size)
        self.pool = BlockPool(num_blocks, self.events)
        self.enable_prefix_caching = enable_prefix_caching

    def on_kv_event(self, listener: KVListener | None) -> None:
        """From now on one batch for each step that changes what can be found; at once, one that holds all.

        The listener is called in the thread that steps, and must be quick. None ends it.
        """
        self.events.listen(listener, self.pool.findable().items())

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def admit(self, request: Request, reserve: int = 0) -> bool:
        """Books blocks for all tokens of the request, shared prefix first; leaves `reserve` blocks to others.

        Sets num_computed_tokens to the shared prefix, which is never the whole: the last token is always
        computed, for its logits.
        """
        assert not request.block_ids, f"{request.request_id} has blocks already"
        prefix = max(self._parents_blocks(request), self._cached_prefix(request), key=len)
        missing = self.blocks_for(request.num_tokens) - len(prefix)
        if missing + self.pool.num_unreferenced(prefix) + reserve > self.pool.num_available:
            return False
        self.pool.retain(prefix)
        fresh = self.pool.take(missing)
        assert fresh is not None
        request.block_ids = prefix + fresh
        request.num_computed_tokens = len(prefix) * self.block_size
        return True

    def grow(self, request: Request, num_tokens: int, reserve: int = 0) -> bool:
        """Makes the block table long enough for `num_tokens` tokens; leaves `reserve` blocks to others."""
        missing = self.blocks_for(num_tokens) - len(request.block_ids)
        if missing <= 0:
            return True
        if missing + reserve > self.pool.num_available:
            return False
        fresh = self.pool.take(missing)
        assert fresh is not None
        request.block_ids += fresh
        return True

    def trim(self, request: Request) -> None:
        """Gives back the blocks behind the computed tokens: those of guesses that were wrong."""
        num_kept = self.blocks_for(request.num_computed_tokens)
        surplus = request.block_ids[num_kept:]
        if surplus:
            del request.block_ids[num_kept:]
            self.pool.release(surplus)

    def publish(self, request: Request, num_before: int) -> None:
        """Makes the blocks that were filled since `num_before` computed tokens findable."""
        if not self.enable_prefix_caching:
            return
        num_full = request.num_computed_tokens // self.block_size
        self._extend_hashes(request, num_full)
        for index in range(num_before // self.block_size, num_full):
            parent = request.block_hashes[index - 1] if index else root_hash(request.cache_salt)
            self.pool.publish(request.block_ids[index], request.block_hashes[index], parent)

    def free(self, request: Request) -> int:
        """Releases all of the request's blocks; how many those were."""
        blocks, request.block_ids = request.block_ids, []
        request.num_computed_tokens = 0
        self.pool.release(blocks)
        return len(blocks)

    def _parents_blocks(self, request: Request) -> list[int]:
        """The common prompt's full blocks, if the request forked from still has them. Nobody writes those."""
        parent = request.forked_from
        if parent is None:
            return []
        num_usable = min(parent.num_computed_tokens, request.num_prompt_tokens, request.num_tokens - 1)
        return parent.block_ids[: num_usable // self.block_size]

    def _cached_prefix(self, request: Request) -> list[int]:
        unscored = request.num_scored_tokens < request.num_prompt_tokens
        if unscored or not self.enable_prefix_caching:
            return []
        num_usable = (request.num_tokens - 1) // self.block_size
        self._extend_hashes(request, num_usable)
        return self.pool.find(request.block_hashes[:num_usable])

    def _extend_hashes(self, request: Request, num_blocks: int) -> None:
        """Tokens are only ever appended, so hashes once made stay right."""
        hashes, size = request.block_hashes, self.block_size
        parent = hashes[-1] if hashes else root_hash(request.cache_salt)
        for index in range(len(hashes), num_blocks):
            parent = block_hash(parent, request.token_ids[index * size : (index + 1) * size])
            hashes.append(parent)
