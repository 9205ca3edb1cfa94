"""Tasks that outlive the call that started them: kept referenced, their failure logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from baton_common.errors import BusError

log = logging.getLogger(__name__)
_running: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """For short work that nobody awaits, such as an answer sent from a bus callback."""
    task = asyncio.create_task(work)
    _running.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if task.cancelled() or not (error := task.exception()):
        return
    if isinstance(error, BusError):  # who waited for it finds out by its own time-out
        log.warning("not sent: %s", error)
    else:
        log.error("background work failed: %s: %s", type(error).__name__, error)
