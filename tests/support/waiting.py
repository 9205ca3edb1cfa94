"""Waiting for what happens without an event to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_TURNS = 200
"""Most of what happens in the test's own event loop needs no more."""
_PAUSE_SECONDS = 0.002
PATIENCE_SECONDS = 20.0
"""Only a test that fails waits so long: a busy machine may need seconds for what takes none."""


async def eventually(is_so: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Returns once `is_so`: other tasks have their turns first, then sockets and processes their time. Raises
    TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        for _ in range(_TURNS):
            if is_so():
                return
            await asyncio.sleep(0)
        while not is_so():
            await asyncio.sleep(_PAUSE_SECONDS)
