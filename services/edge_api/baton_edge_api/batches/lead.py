"""Who runs batches: one edge of all, by a word in the bucket that it renews each second.

Owns taking, keeping and losing the lead. No clock is shared: a leader is taken to be dead when the word has
not changed for LOST_SECONDS by our own clock, or at once when its lease on the bus has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from baton_common.errors import RequestFailed
from baton_common.node import Node
from baton_edge_api.batches.store import OfflineStore

log = logging.getLogger(__name__)

RENEW_SECONDS = 1.0
LOST_SECONDS = 5.0


class Lead:
    def __init__(self, node: Node, store: OfflineStore, *, renew_seconds: float = RENEW_SECONDS) -> None:
        self._node = node
        self._store = store
        self._renew_seconds = renew_seconds
        self._revision = 0
        self._seen: tuple[str, int, float] | None = None
        """The leader's name, its word's revision, and since when that stands."""
        self._gone = asyncio.Event()
        self._unwatch: Callable[[], None] | None = None

    async def try_take(self) -> bool:
        """True when this process leads now. Raises RequestFailed."""
        name, revision = await self._store.leader()
        if revision and name != self._node.instance and not self._is_dead(name, revision):
            return False
        taken = await self._store.take_lead(self._node.instance, revision)
        if taken is None:
            return False
        self._forget()
        self._revision = taken
        log.info("runs batches now%s", f", after {name}" if name else "")
        return True

    async def keep(self) -> None:
        """Returns when the lead is lost."""
        monotonic = self._node.clock.monotonic
        given_up_at = monotonic() + LOST_SECONDS - self._renew_seconds
        while monotonic() < given_up_at:
            await asyncio.sleep(self._renew_seconds)
            try:
                async with asyncio.timeout(given_up_at - monotonic()):
                    taken = await self._renew()
            except (RequestFailed, TimeoutError) as failed:
                log.warning("lead not renewed: %s", str(failed) or "no answer")
                continue
            if taken is None:
                log.warning("another edge runs batches now")
                self._revision = 0
                return
            self._revision, given_up_at = taken, monotonic() + LOST_SECONDS - self._renew_seconds
        log.warning("lead given up: it could not be renewed for too long")
        self._revision = 0

    async def _renew(self) -> int | None:
        """None: somebody else leads. A word of ours whose answer was lost is no one else's."""
        taken = await self._store.take_lead(self._node.instance, self._revision)
        if taken is None:
            name, revision = await self._store.leader()
            taken = revision if name == self._node.instance else None
        return taken

    async def give_up(self) -> None:
        """For the next one to begin at once."""
        revision, self._revision = self._revision, 0
        if not revision:
            return
        try:
            await self._store.give_up_lead(revision)
        except RequestFailed as failed:
            log.warning("lead not given back: %s", failed)

    def _is_dead(self, name: str, revision: int) -> bool:
        now = self._node.clock.monotonic()
        if self._seen is None or self._seen[:2] != (name, revision):
            if self._seen is None or self._seen[0] != name:
                self._forget()
                self._unwatch = self._node.leases.watch(name, lambda _: self._gone.set())
            self._seen = (name, revision, now)
            return False
        return self._gone.is_set() or now - self._seen[2] >= LOST_SECONDS

    def _forget(self) -> None:
        if self._unwatch:
            self._unwatch()
        self._unwatch, self._seen = None, None
        self._gone.clear()
