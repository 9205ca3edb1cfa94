"""The receiving side of numbered frames: one wildcard inbox a process, one bounded queue a request.

Owns order: duplicates are dropped, a gap is asked of its sender once, what can't be repaired becomes
StreamBroken. Does not know what frames mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.errors import BusError, NoResponders, StreamBroken
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.frames import Data, End, Error, Held, Prologue, Resend, Resent, decode_frame

log = logging.getLogger(__name__)

AnyFrame = Held | Prologue | Data | End | Error

QUEUE_FRAMES = 4096
"""A receiver this far behind is not going to catch up."""


class QueueOverflow(StreamBroken):
    """The consumer of this queue is so much slower than its sender that frames were dropped."""

    def __init__(self, capacity: int) -> None:
        super().__init__(f"a sender that is over {capacity} frames ahead of its receiver", lost=False)


class FrameQueue:
    """The frames of one request, in order. Closed by its owner, always."""

    def __init__(self, bus: Bus, request_id: str, capacity: int, on_close: Callable[[], None]) -> None:
        self._bus = bus
        self._request_id = request_id
        self._capacity = capacity
        self._on_close = on_close
        self._arrived: asyncio.Queue[AnyFrame] = asyncio.Queue()
        self._ordered: deque[AnyFrame] = deque()
        self._stream: tuple[str, int] | None = None
        self._expected = 0
        self._overflow = False

    def put(self, frame: AnyFrame) -> None:
        if self._arrived.qsize() >= self._capacity:
            self._overflow = True
        else:
            self._arrived.put_nowait(frame)

    def close(self) -> None:
        self._on_close()

    def __len__(self) -> int:
        """Frames that have arrived and were not taken yet."""
        return self._arrived.qsize() + len(self._ordered)

    def _accept(self, frame: AnyFrame) -> bool:
        """Puts `frame` into order if it is the next one; False if frames before it are missing."""
        if frame.seq < 0:
            self._ordered.append(frame)
            return True
        stream = (frame.sender, frame.attempt)
        if stream != self._stream:
            if self._stream and frame.attempt < self._stream[1]:
                return True  # a late word of an attempt that was given up
            self._stream, self._expected = stream, 0
        if frame.seq < self._expected:
            return True
        if frame.seq > self._expected:
            return False
        self._expected += 1
        self._ordered.append(frame)
        return True

    async def _repair(self) -> None:
        """Asks the sender for everything from the first missing frame on."""
        if self._stream is None:
            return
        sender, attempt = self._stream
        ask = Resend(attempt=attempt, first_seq=self._expected)
        try:
            raw = await self._bus.request(subjects.resend(sender, self._request_id), ask.encode(), timeout=2)
            answer = Resent.decode(raw)
        except NoResponders:
            raise StreamBroken(sender, lost=True) from None
        except MalformedMessage:
            raise StreamBroken(sender, lost=False) from None
        except BusError as error:
            log.warning("frames of %s not repaired yet: %s", sender, error)
            return
        if not answer.available:
            raise StreamBroken(sender, lost=False)
        for frame in answer.frames:
            self._accept(frame)

    async def get(self, stall_seconds: float = 2.0) -> AnyFrame:
        """The next frame. After `stall_seconds` of silence the sender is asked whether it sent more, again
        and again: the caller bounds the whole wait. Raises StreamBroken or QueueOverflow."""
        while not self._ordered:
            if self._overflow:
                raise QueueOverflow(self._capacity)
            try:
                async with asyncio.timeout(stall_seconds):
                    frame = await self._arrived.get()
            except TimeoutError:
                await self._repair()
                continue
            if not self._accept(frame):
                await self._repair()
        return self._ordered.popleft()


class FrameInbox:
    """Demultiplexes one wildcard subscription by request id."""

    def __init__(self, bus: Bus, subject: str) -> None:
        self._bus = bus
        self._subject = subject
        self._queues: dict[str, FrameQueue] = {}
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(self._subject, self._on_message)

    async def stop(self) -> None:
        if self._subscription:
            await self._subscription.unsubscribe()

    def open(self, request_id: str, capacity: int = QUEUE_FRAMES) -> FrameQueue:
        """Raises KeyError if this process already listens for `request_id`."""
        if request_id in self._queues:
            raise KeyError(request_id)

        def forget() -> None:
            self._queues.pop(request_id, None)

        queue = FrameQueue(self._bus, request_id, capacity, forget)
        self._queues[request_id] = queue
        return queue

    @property
    def num_open(self) -> int:
        return len(self._queues)

    def _on_message(self, message: BusMessage) -> None:
        queue = self._queues.get(subjects.request_id_of(message.subject))
        if queue is None:
            return  # late frames of a request that is over
        try:
            queue.put(decode_frame(message.payload))
        except MalformedMessage as error:
            log.warning("frame ignored: %s", error)
