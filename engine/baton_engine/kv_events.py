"""What became findable in the prefix cache and what went, for a router that asks who has which prefix.

Owns the numbering and the merging of changes into batches, one a step; knows no blocks, only hashes.

A receiver that applies the batches of one epoch in order has exactly the set of hashes of that cache. Numbers
go up by one: a gap means a lost batch, another epoch another cache. Either way, listening again mends it: the
first batch of a listener clears and then holds all there is.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BlocksStored:
    """A run of one prefix: parent_hash comes before the first block, each block before the next."""

    parent_hash: bytes
    block_hashes: tuple[bytes, ...]


@dataclass(frozen=True)
class BlocksRemoved:
    block_hashes: tuple[bytes, ...]


@dataclass(frozen=True)
class CacheCleared:
    """Nothing is cached any more."""


KVEvent = BlocksStored | BlocksRemoved | CacheCleared


@dataclass(frozen=True)
class KVEventBatch:
    """The changes of one step, in order. block_size is in tokens."""

    epoch: str
    number: int
    block_size: int
    events: tuple[KVEvent, ...]


@dataclass
class Run:
    """An event while it grows; parent None: the hashes are removed."""

    parent: bytes | None
    hashes: list[bytes]

    @property
    def event(self) -> KVEvent:
        hashes = tuple(self.hashes)
        return BlocksRemoved(hashes) if self.parent is None else BlocksStored(self.parent, hashes)


KVListener = Callable[[KVEventBatch], None]


class KVEventLog:
    """Without a listener nothing is gathered."""

    def __init__(self, block_size: int) -> None:
        self.epoch = secrets.token_hex(8)
        self.block_size = block_size
        self._number = 0
        self._listener: KVListener | None = None
        self._pending: list[Run | CacheCleared] = []

    def listen(self, listener: KVListener | None, stored: Iterable[tuple[bytes, bytes]]) -> None:
        """`stored` is what the cache holds now, as (hash, parent's hash); None stops listening."""
        self._listener = listener
        self._pending = []
        if listener is not None:
            self.cleared()
            for digest, parent in stored:
                self.stored(digest, parent)
            self.flush()

    def stored(self, digest: bytes, parent: bytes) -> None:
        if self._listener is None:
            return
        last = self._pending[-1] if self._pending else None
        if isinstance(last, Run) and last.parent is not None and last.hashes[-1] == parent:
            last.hashes.append(digest)
        else:
            self._pending.append(Run(parent, [digest]))

    def removed(self, digest: bytes) -> None:
        if self._listener is None:
            return
        last = self._pending[-1] if self._pending else None
        if isinstance(last, Run) and last.parent is None:
            last.hashes.append(digest)
        else:
            self._pending.append(Run(None, [digest]))

    def cleared(self) -> None:
        """What was gathered and not yet sent would be undone by this: it is left out."""
        if self._listener is not None:
            self._pending = [CacheCleared()]

    def flush(self) -> None:
        """Delivers what was gathered, in the caller's thread. A listener that raises loses this batch."""
        if self._listener is None or not self._pending:
            return
        events = tuple(one.event if isinstance(one, Run) else one for one in self._pending)
        batch = KVEventBatch(self.epoch, self._number, self.block_size, events)
        self._number += 1
        self._pending = []
        try:
            self._listener(batch)
        except Exception:  # a listener's fault is not the cache's
            log.exception("the listener to KV events failed on batch %d, which is lost to it", batch.number)
