"""Read your own writes: a question waits until what was stored before it is committed.

AFTER is a work queue: a record leaves it when it is acknowledged, and it is acknowledged after its commit. So
the queue itself tells, whichever process does the writing. Knows nothing of the records.
"""

from __future__ import annotations

import asyncio

from baton_common.bus import Bus
from baton_common.errors import BusError, RequestFailed
from baton_common.jetstream import StreamState, stream_state
from baton_contracts.errors import ErrorBody
from baton_contracts.subjects import STREAM_AFTER

_LONGEST_PAUSE_SECONDS = 0.02


def has_passed(state: StreamState, last_seq: int) -> bool:
    """Is everything up to `last_seq` out of the queue?"""
    return state.messages == 0 or state.first_seq > last_seq


class CommitBarrier:
    def __init__(self, bus: Bus, seconds: float) -> None:
        self._bus = bus
        self._seconds = seconds
        self._progress = asyncio.Event()
        self._num_waiting = 0
        self._is_asked = asyncio.Event()

    @property
    def is_asked(self) -> bool:
        """Somebody waits."""
        return self._is_asked.is_set()

    async def asked(self) -> None:
        """Returns while somebody waits, or once somebody does."""
        await self._is_asked.wait()

    def note_commit(self) -> None:
        """Wakes those who wait; only makes them quicker."""
        self._progress.set()
        self._progress = asyncio.Event()

    async def wait(self) -> None:
        """Raises RequestFailed (503) when the records are not written in time, or the queue can't be asked:
        an answer from old books would be a wrong one."""
        self._num_waiting += 1
        self._is_asked.set()
        try:
            await self._until_passed()
        except BusError as error:
            text = f"The queue of the books is away ({error}). Try again shortly."
            raise RequestFailed(
                ErrorBody(code="bus_unavailable", message=text, stop="after_answer", retry_after_seconds=1)
            ) from None
        finally:
            self._num_waiting -= 1
            if not self._num_waiting:
                self._is_asked.clear()

    async def _until_passed(self) -> None:
        state = await stream_state(self._bus, STREAM_AFTER)
        target = state.last_seq
        try:
            async with asyncio.timeout(self._seconds):
                pause = 0.001
                while not has_passed(state, target):
                    await self._pause(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                    state = await stream_state(self._bus, STREAM_AFTER)
        except TimeoutError:
            raise RequestFailed(self._behind(target - state.first_seq + 1)) from None

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._progress.wait()
        except TimeoutError:
            return

    def _behind(self, num_records: int) -> ErrorBody:
        text = (
            f"The books are {num_records} records behind and did not catch up within {self._seconds:g} s. "
            "Try again shortly."
        )
        return ErrorBody(code="stop_unresponsive", message=text, stop="after_answer", retry_after_seconds=1)
