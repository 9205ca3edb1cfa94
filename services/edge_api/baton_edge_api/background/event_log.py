"""The events of a response that is streamed from the background: the bucket `baton_background_events`.

    TENANT.KEY.N    the Nth piece: whole server-sent events, as clients get them; the last piece is END

Owns their order. A piece is written once: who finds another's in its place makes the response no longer. The
event that says how it ended is not among them: the books have that. Knows nothing of who reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from baton_common.errors import BusError
from baton_edge_api.bucket import BucketFull, Conflict, NatsBucket
from baton_edge_api.responses.events import numbered

log = logging.getLogger(__name__)

END = b": end\n\n"
_PIECE_BYTES = 256 * 1024
"""Events that wait are written together, up to so much."""
_MAX_LOG_BYTES = 32 * 1024 * 1024
"""Of one response."""
_AGAIN_SECONDS = 1.0


class EventLog:
    """Of one response, for who makes it."""

    def __init__(
        self, bucket: NatsBucket, entry: str, max_piece_bytes: int, lost: Callable[[], None]
    ) -> None:
        """`lost`: called when somebody else writes it."""
        self._bucket = bucket
        self._entry = entry
        self._max_piece_bytes = max_piece_bytes
        self._lost = lost
        self._num_pieces = 0
        self._num_bytes = 0
        self.num_events = 0
        """That it has, or will have: the number of the next one."""
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._is_over = False
        self._is_full = False

    async def open(self) -> tuple[bytes, ...]:
        """Goes on behind what another edge has written: these pieces."""
        while True:
            try:
                pieces = tuple((await self._bucket.read_all(f"{self._entry}.>")).values())
                break
            except BusError as error:
                log.info("events of %s can't be read yet: %s", self._entry, error)
                await asyncio.sleep(_AGAIN_SECONDS)
        self._num_pieces = len(pieces)
        self._num_bytes = sum(map(len, pieces))
        self._is_full = END in pieces
        for number, _ in (found for piece in pieces for found in numbered(piece)):
            self.num_events = max(self.num_events, number + 1)
        return pieces

    def add(self, piece: bytes) -> None:
        """Events it has already are left out: each run of the response begins with the same ones."""
        for number, event in numbered(piece):
            if number < self.num_events or self._is_full:
                continue
            self._num_bytes += len(event)
            if len(event) > self._max_piece_bytes:
                self._fill(f"one takes more than {self._max_piece_bytes} bytes")
            elif self._num_bytes > _MAX_LOG_BYTES:
                self._fill(f"they take more than {_MAX_LOG_BYTES} bytes")
            else:
                self.num_events = number + 1
                self._waiting.append(event)
        self._news.set()

    def _fill(self, why: str) -> None:
        """What follows is told by the response alone."""
        log.warning("further events of %s are not kept: %s", self._entry, why)
        self._is_full = True

    def end(self) -> None:
        """Nothing is added any more."""
        self._is_over = True
        self._news.set()

    async def write(self) -> None:
        """Until all is written that was added before the end."""
        while not (self._is_over and not self._waiting):
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                if not await self._write(self._next_piece()):
                    return
        await self._write(END)

    def _next_piece(self) -> bytes:
        events = [self._waiting.popleft()]
        num_bytes = len(events[0])
        while self._waiting and (num_bytes := num_bytes + len(self._waiting[0])) < _PIECE_BYTES:
            events.append(self._waiting.popleft())
        return b"".join(events)

    async def _write(self, piece: bytes) -> bool:
        """False: nothing more can be written."""
        name = f"{self._entry}.{self._num_pieces}"
        while True:
            try:
                if not await self._is_written(name, piece):
                    self._lost()
                    return False
            except BucketFull:
                self._fill("there is no more space for events")
                self._waiting.clear()
                return False
            except BusError as error:
                log.info("events of %s not written yet: %s", self._entry, error)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._num_pieces += 1
                return True

    async def _is_written(self, name: str, piece: bytes) -> bool:
        try:
            await self._bucket.replace(name, piece, 0)
        except Conflict:  # or the answer to our own write was lost
            return (await self._bucket.read(name))[0] == piece
        return True
