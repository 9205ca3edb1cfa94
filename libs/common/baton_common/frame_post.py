"""Frames on their way out: what several streams send within one turn of the event loop, and what one stream
has at once, goes in one message.

Owns who gathers and for how long (ADR 23). Knows no numbers and no ring buffers; a frame that the bus does
not take is its stream's to send again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from baton_common.bus import Bus
from baton_common.errors import BusError
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.frames import join_frames

log = logging.getLogger(__name__)

MOST_BATCH_BYTES = 256 * 1024

ReadBatches = Callable[[Sequence[str]], bool]
"""Whether all of these instances read batches."""


class FramePost:
    def __init__(self, bus: Bus, read_batches: ReadBatches) -> None:
        self._bus = bus
        self._read_batches = read_batches
        self._gathered: dict[str, list[tuple[str, bytes]]] = {}
        """Subject and payload of frames that go to the same readers, by the subject of their batch."""
        self._is_gathering = False
        self.num_streams = 0
        """Of those that may send now: one alone has nobody to wait for."""

    async def send(self, subject: str, *payloads: bytes) -> None:
        """The frames are out, or will be within a turn of the loop."""
        if self.num_streams <= 1 and not self._is_gathering:
            if len(payloads) == 1:
                await self._publish(subject, payloads[0])
            else:
                await self._send_batch(subjects.batch_of(subject), [(subject, one) for one in payloads])
            return
        gathered = self._gathered.setdefault(subjects.batch_of(subject), [])
        gathered.extend((subject, payload) for payload in payloads)
        if not self._is_gathering:
            await self._gather()

    async def _gather(self) -> None:
        """The first of a turn lets all others of it run, and then sends what they left too."""
        self._is_gathering = True
        try:
            await asyncio.sleep(0)
            await self._send_gathered()
        except asyncio.CancelledError:
            spawn(self._send_gathered())
            raise
        finally:
            self._is_gathering = False

    async def _send_gathered(self) -> None:
        while self._gathered:
            batch_subject = next(iter(self._gathered))
            await self._send_batch(batch_subject, self._gathered.pop(batch_subject))

    async def _send_batch(self, batch_subject: str, frames: Sequence[tuple[str, bytes]]) -> None:
        if len(frames) > 1 and self._read_batches(subjects.readers_of(batch_subject)):
            for part in _parts(frames):
                await self._publish(batch_subject, join_frames(part))
        else:
            for subject, payload in frames:
                await self._publish(subject, payload)

    async def _publish(self, subject: str, payload: bytes) -> None:
        try:
            await self._bus.publish(subject, payload)
        except BusError as error:
            log.debug("frames kept for later: %s", error)


def _parts(frames: Sequence[tuple[str, bytes]]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for _, payload in frames:
        if part and size + len(payload) > MOST_BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(payload)
        size += len(payload)
    yield part
