"""The entries of a bucket that this edge works on: a run and a task for each.

Owns that a run which fails takes no other with it, and the pause before it is taken up again. Knows nothing
of what a run does or of who begins it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from baton_common.errors import RequestFailed
from baton_edge_api.inside import unless

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_AFTER_FAULT_SECONDS = 10.0


class Run(Protocol):
    async def run(self) -> None:
        """Until its work is done or it was told to leave. Raises RequestFailed if it can't go on now."""
        ...


Some = TypeVar("Some", bound=Run)


class EntryRuns(Generic[Some]):
    def __init__(self, ended: Callable[[str, Some], None]) -> None:
        """`ended` is told of each that came to its end without failing, while it still stands here."""
        self._ended = ended
        self._runs: dict[str, tuple[Some, asyncio.Task[None]]] = {}
        self._hurry = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while there is none."""
        self.idle.set()
        self.changed = asyncio.Event()
        """Set when one goes; for who waits to begin another."""

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, entry: str) -> bool:
        return entry in self._runs

    def get(self, entry: str) -> Some | None:
        found = self._runs.get(entry)
        return found[0] if found else None

    @property
    def entries(self) -> frozenset[str]:
        return frozenset(self._runs)

    @property
    def runs(self) -> list[Some]:
        return [run for run, _ in self._runs.values()]

    def begin(self, entry: str, run: Some) -> None:
        self.idle.clear()
        self._runs[entry] = (run, asyncio.create_task(self._one(entry, run)))

    async def _one(self, entry: str, run: Some) -> None:
        try:
            await run.run()
            self._ended(entry, run)
        except RequestFailed as failed:
            log.warning("%s waits: %s", entry, failed)
            await unless(self._hurry, asyncio.sleep(_AGAIN_SECONDS))
        except Exception:  # a fault of ours in one: the others go on
            log.exception("%s failed; it is taken up again", entry)
            await unless(self._hurry, asyncio.sleep(_AFTER_FAULT_SECONDS))
        finally:
            del self._runs[entry]
            self.changed.set()
            if not self._runs:
                self.idle.set()

    def hurry(self) -> None:
        """None is taken up again here: those that pause for it end."""
        self._hurry.set()

    async def end(self, seconds: float) -> None:
        """Of runs that were told to leave: waits so long, then cuts them off."""
        tasks = [task for _, task in self._runs.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
