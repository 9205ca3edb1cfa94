"""The load client: questions over raw sockets, many at a time, one after the other on each connection.

Knows HTTP/1.1 as far as the servers here speak it. Raw, because it shares the cores with what it measures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

ANSWER_SECONDS = 120.0


class LoadFailed(Exception):
    """A server refused, broke off, or gave another answer than the upstream's."""


@dataclass(frozen=True)
class Place:
    port: int
    key: str
    model: str
    more: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of each request."""
    proof: bytes = b""
    """What each answer must have in it, so that a gateway is measured with what it is said to do."""

    def request(self, number: int, *, stream: bool) -> bytes:
        """Every question is another one, so that no cache answers it."""
        body = json.dumps(
            {
                "model": self.model,
                "messages": [{"role": "user", "content": f"What is {number} plus {number}? Be brief."}],
                "temperature": 0,
                "max_tokens": 64,
                "stream": stream,
                **self.more,
            }
        ).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            f"authorization: Bearer {self.key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass
class Answer:
    """Times are time.perf_counter() seconds."""

    sent: float
    first: float = 0.0
    """Its first text, of a stream."""
    ended: float = 0.0
    num_events: int = 0
    longest_gap: float = 0.0
    """Between two reads of a stream's body."""


@dataclass
class _Reader(asyncio.Protocol):
    """One connection; `waiting` is set when the answer asked for last is here."""

    marks: tuple[bytes, bytes]
    """What must be in an answer: its first text, its last."""
    proof: bytes
    transport: asyncio.Transport | None = None
    answer: Answer | None = None
    waiting: asyncio.Future[None] | None = None
    received: bytearray = field(default_factory=bytearray)
    is_chunked: bool = False
    _size: int = 0
    _last_read: float = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting and not self.waiting.done():
            self.waiting.set_exception(LoadFailed(f"connection lost: {bytes(self.received[:400])!r}"))

    def data_received(self, data: bytes) -> None:
        now, answer = time.perf_counter(), self.answer
        assert answer
        self.received += data
        if self.is_chunked:
            answer.num_events += data.count(b"data: ")
            if self._last_read:
                answer.longest_gap = max(answer.longest_gap, now - self._last_read)
            self._last_read = now
        if not answer.first and self.marks[0] in self.received:
            answer.first = now
        if self._is_whole():
            answer.ended = now
            self._check()

    def _is_whole(self) -> bool:
        if not self._size and not self.is_chunked:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return False
            head = bytes(self.received[:end]).lower()
            self.is_chunked = b"transfer-encoding: chunked" in head
            if self.is_chunked:
                assert self.answer
                self.answer.num_events = self.received.count(b"data: ")
            else:
                self._size = end + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        if self.is_chunked:
            return self.received.endswith(b"0\r\n\r\n")
        return len(self.received) >= self._size

    def _check(self) -> None:
        assert self.waiting
        is_whole = self.marks[1] in self.received and self.proof in self.received
        if not self.received.startswith(b"HTTP/1.1 200") or not is_whole:
            self.waiting.set_exception(LoadFailed(bytes(self.received[:600]).decode(errors="replace")))
        else:
            self.waiting.set_result(None)

    async def ask(self, request: bytes) -> Answer:
        assert self.transport
        self.answer = Answer(time.perf_counter())
        self.received = bytearray()
        self._size, self.is_chunked, self._last_read = 0, False, 0.0
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        async with asyncio.timeout(ANSWER_SECONDS):
            await self.waiting
        return self.answer


async def run_load(
    place: Place,
    *,
    width: int,
    stream: bool,
    going_on: Callable[[int], bool],
    first_number: int = 0,
    ramp_seconds: float = 0.0,
) -> list[Answer]:
    """`width` connections ask while `going_on(how many were asked)`, the last one `ramp_seconds` after the
    first. Raises LoadFailed."""
    marks = (b"word0", b"[DONE]") if stream else (b"word0", b"word31")
    answers: list[Answer] = []
    asked = 0

    async def one_connection(delay: float) -> None:
        nonlocal asked
        await asyncio.sleep(delay)
        loop = asyncio.get_running_loop()
        _, reader = await loop.create_connection(lambda: _Reader(marks, place.proof), "127.0.0.1", place.port)
        try:
            while going_on(asked):
                asked += 1
                answers.append(await reader.ask(place.request(first_number + asked, stream=stream)))
        finally:
            assert reader.transport
            reader.transport.close()

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(width):
                group.create_task(one_connection(ramp_seconds * number / width))
    except* (LoadFailed, OSError, TimeoutError) as failed:
        raise LoadFailed(repr(failed.exceptions[0])) from None
    return answers
