"""The receiving side of numbered frames: one wildcard inbox a process, one bounded queue a request.

Owns order: duplicates are dropped, a gap is asked of its sender once, what can't be repaired becomes
StreamBroken. A frame means the same alone and in a batch. Does not know what frames mean.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.errors import BusError, NoResponders, StreamBroken
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.frames import Data, End, Error, FrameBatch, Held, Prologue, Resend, Resent, decode_frame

log = logging.getLogger(__name__)

AnyFrame = Held | Prologue | Data | End | Error

REPAIR_SECONDS = 2.0
"""A sender that does not answer within this is asked again."""
QUEUE_FRAMES = 4096
"""A receiver this far behind is not going to catch up."""


class QueueOverflow(StreamBroken):
    """The consumer of this queue is so much slower than its sender that frames were dropped."""

    def __init__(self, capacity: int) -> None:
        super().__init__(f"a sender that is over {capacity} frames ahead of its receiver", lost=False)


class Arrival:
    """Waiting for the next frame, over and over: one timer serves all waits, moved only when it rings."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0

    async def within(self, seconds: float) -> bool:
        """False after so many seconds of silence. One wait at a time."""
        loop = asyncio.get_running_loop()
        self._until = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._until:
            self.stop()
            self._timer = loop.call_at(self._until, self._ring)
        self._waiter = loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def happened(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(True)

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._until:  # it was set for an earlier wait
            self._timer = loop.call_at(self._until, self._ring)
        else:
            self._waiter.set_result(False)


class FrameQueue:
    """The frames of one request, in order. Closed by its owner, always."""

    def __init__(self, bus: Bus, request_id: str, capacity: int, on_close: Callable[[], None]) -> None:
        self._bus = bus
        self._request_id = request_id
        self._capacity = capacity
        self._on_close = on_close
        self._arrived: deque[AnyFrame] = deque()
        self._ordered: deque[AnyFrame] = deque()
        self._arrival = Arrival()
        self._stream: tuple[str, int] | None = None
        self._expected = 0
        self._overflow = False
        self._first_attempt = 1
        self.run_id: str | None = None
        """Once it is known: a frame that names another run of the same request id is not for here."""
        self.is_listening = True
        """Otherwise what the bus brings is not even read: frames that its owner sends itself."""

    def put(self, frame: AnyFrame) -> None:
        """An unnumbered one, which nobody can send again, always has a place."""
        if frame.seq < 0:
            self._arrived.append(frame)
        elif frame.attempt < self._first_attempt:
            return
        elif len(self._arrived) >= self._capacity:
            self._overflow = True
        else:
            self._arrived.append(frame)
        self._arrival.happened()

    def hear(self, frame: AnyFrame) -> None:
        """What the bus brings. A run's name has done its work here: what is made of the frame may be for
        others."""
        if not self.is_listening:
            return
        if frame.run_id is not None:
            if self.run_id not in (None, frame.run_id):
                return
            frame = frame.model_copy(update={"run_id": None})
        self.put(frame)

    def begin(self, attempt: int) -> None:
        """This one is waited for from now on. What earlier ones sent, too much of it perhaps, and what they
        send yet is nothing to it; nor are they asked for more, one of which may be frozen."""
        self._overflow, self._first_attempt = False, attempt
        if self._stream and self._stream[1] < attempt:
            self._stream = None
        for frames in (self._ordered, self._arrived):
            kept = [frame for frame in frames if frame.seq < 0 or frame.attempt >= attempt]
            frames.clear()
            frames.extend(kept)

    def close(self) -> None:
        self._arrival.stop()
        self._on_close()

    def __len__(self) -> int:
        """Frames that have arrived and were not taken yet."""
        return len(self._arrived) + len(self._ordered)

    def untaken(self) -> Iterator[AnyFrame]:
        """The same frames, looked at and left here; there may be gaps between them."""
        yield from self._ordered
        yield from self._arrived

    async def grows(self, seconds: float) -> bool:
        """Waits for one more, and leaves it here. False: none came. Nobody else may be waiting."""
        return await self._arrival.within(seconds)

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

    async def _repair(self, seconds: float) -> None:
        """Asks the sender for everything from the first missing frame on."""
        if self._stream is None:
            return
        sender, attempt = self._stream
        ask = Resend(attempt=attempt, first_seq=self._expected)
        subject = subjects.resend(sender, self._request_id)
        try:
            answer = Resent.decode(await self._bus.request(subject, ask.encode(), timeout=seconds))
        except NoResponders:
            if not self._bus.is_settled:
                return
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

    async def get(self, stall_seconds: float = 2.0, *, by: float = math.inf) -> AnyFrame:
        """The next frame. After `stall_seconds` of silence the sender is asked whether it sent more, again
        and again, until `by` of the loop's clock. Raises TimeoutError then; StreamBroken; QueueOverflow,
        after which it begins anew: what comes is heard again."""
        while not self._ordered:
            if self._overflow:
                self._overflow = False
                self._arrived = deque(frame for frame in self._arrived if frame.seq < 0)
                raise QueueOverflow(self._capacity)
            is_silent = not self._arrived and not await self._arrival.within(min(stall_seconds, _left(by)))
            if is_silent or (self._arrived and not self._accept(self._arrived.popleft())):
                await self._repair(min(REPAIR_SECONDS, _left(by)))
        return self._ordered.popleft()


def _left(by: float) -> float:
    """Seconds. Raises TimeoutError if there are none."""
    left = by - asyncio.get_running_loop().time()
    if left <= 0:
        raise TimeoutError
    return left


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
        try:
            if subjects.is_batch(message.subject):
                for frame in FrameBatch.decode(message.payload).frames:
                    self._put(frame)
            elif self._is_listened_to(subjects.request_id_of(message.subject)):
                self._put(decode_frame(message.payload))
        except MalformedMessage as error:
            log.warning("frame ignored: %s", error)

    def _is_listened_to(self, request_id: str) -> bool:
        queue = self._queues.get(request_id)
        return queue is not None and queue.is_listening

    def _put(self, frame: AnyFrame) -> None:
        queue = self._queues.get(frame.request_id)
        if queue is not None:  # else it is a late one of a request that is over
            queue.hear(frame)
