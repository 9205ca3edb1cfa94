"""The sending side of numbered frames: numbers them, remembers the last ones, sends them again when asked.

Owns one ring buffer a stream, kept past its end for a while (a receiver may still miss its tail): of what was
sent, byte by byte.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.frame_post import FramePost, ReadBatches
from baton_common.last_words import LastWords
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.frames import Data, End, Error, Prologue, Resend, Resent, encode_frame, join_resent

log = logging.getLogger(__name__)

RING_FRAMES = 1024
KEPT_STREAMS = 512
KEPT_BYTES = 64 * 1024 * 1024
"""Ended streams whose frames are kept, and their frames in all; the oldest goes first."""
MOST_RESENT_BYTES = 512 * 1024
"""At once, beyond the first frame: who misses more asks again for the rest."""

NumberedFrame = Prologue | Data | End | Error
_F = TypeVar("_F", bound=NumberedFrame)


class FrameStream:
    """The frames of one attempt of one request, from this process to one subject."""

    def __init__(
        self, post: FramePost, subject: str, request_id: str, attempt: int, sender: str, run_id: str
    ) -> None:
        self.subject = subject
        self.request_id = request_id
        self.run_id = run_id
        self.attempt = attempt
        self.sender = sender
        self.is_open = True
        self._post = post
        self._next_seq = 0
        self._ring: deque[bytes] = deque(maxlen=RING_FRAMES)
        self.last_word: End | Error | None = None
        """Its last frame, if that ends it."""

    async def send(self, frame: _F) -> _F:
        """Numbers `frame` and sends it, together with what other streams send at this moment. While the bus
        is away the frame is only kept: the receiver asks for it later."""
        numbered, payload = self._numbered(frame)
        await self._post.send(self.subject, payload)
        return numbered

    async def send_all(self, frames: Sequence[NumberedFrame]) -> None:
        """The same, of several that are there together: they travel together."""
        await self._post.send(self.subject, *(self._numbered(frame)[1] for frame in frames))

    def _numbered(self, frame: _F) -> tuple[_F, bytes]:
        numbered = frame.model_copy(
            update={"seq": self._next_seq, "sender": self.sender, "attempt": self.attempt}
        )
        payload = encode_frame(numbered)
        self._next_seq += 1
        self._ring.append(payload)
        self.last_word = numbered if isinstance(numbered, End | Error) else None
        return numbered, payload

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self._ring))

    def since(self, first_seq: int) -> list[bytes] | None:
        """Frames from `first_seq` on, as many as go into one message; None if the ring no longer reaches back
        that far."""
        first_kept = self._next_seq - len(self._ring)
        if not first_kept <= first_seq <= self._next_seq:
            return None
        found: list[bytes] = []
        size = 0
        for payload in islice(self._ring, first_seq - first_kept, None):
            size += len(payload)
            if found and size > MOST_RESENT_BYTES:
                break
            found.append(payload)
        return found


class FrameOutbox:
    """All streams of this process, and the answer to `resend.INSTANCE.*`.

    read_batches tells whether instances understand several requests' frames in one message; without it
    nobody does. last_words gets those of the streams: a receiver that missed the first frame, too, has nobody
    to ask.
    """

    def __init__(
        self,
        bus: Bus,
        instance: str,
        read_batches: ReadBatches | None = None,
        last_words: LastWords | None = None,
    ) -> None:
        self._bus = bus
        self._instance = instance
        self._post = FramePost(bus, read_batches or _nobody)
        self._last_words = last_words
        self._streams: dict[tuple[str, int], FrameStream] = {}
        self._ended: deque[tuple[FrameStream, int]] = deque()
        """With the size of what is kept of it."""
        self._num_ended_bytes = 0
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(subjects.resend_all(self._instance), self._on_message)

    async def stop(self) -> None:
        if self._subscription:
            await self._subscription.unsubscribe()

    def open(self, subject: str, request_id: str, attempt: int, run_id: str = "") -> FrameStream:
        """`run_id`: to tell its last word from those of other runs of the same request id."""
        stream = FrameStream(self._post, subject, request_id, attempt, self._instance, run_id)
        self._streams[request_id, attempt] = stream
        self._post.num_streams += 1
        return stream

    def ended(self, stream: FrameStream) -> None:
        """Nothing more will be sent; the ring is kept until enough younger ones have ended."""
        if not stream.is_open:
            return
        stream.is_open = False
        self._post.num_streams -= 1
        if self._last_words and (word := stream.last_word):
            self._last_words.note(stream.subject, word, stream.run_id)
        num_bytes = stream.num_bytes
        self._ended.append((stream, num_bytes))
        self._num_ended_bytes += num_bytes
        while len(self._ended) > KEPT_STREAMS or (
            self._num_ended_bytes > KEPT_BYTES and len(self._ended) > 1
        ):
            oldest, num_bytes = self._ended.popleft()
            self._num_ended_bytes -= num_bytes
            key = oldest.request_id, oldest.attempt
            if self._streams.get(key) is oldest:  # else its id was used again
                del self._streams[key]

    def _on_message(self, message: BusMessage) -> None:
        if not message.reply:
            return
        request_id = subjects.request_id_of(message.subject)
        try:
            asked = Resend.decode(message.payload)
        except MalformedMessage as error:
            log.warning("resend ignored: %s", error)
            return
        stream = self._streams.get((request_id, asked.attempt))
        frames = stream.since(asked.first_seq) if stream else None
        answer = Resent(available=False).encode() if frames is None else join_resent(frames)
        spawn(self._bus.publish(message.reply, answer))


def _nobody(instances: Sequence[str]) -> bool:
    del instances
    return False
