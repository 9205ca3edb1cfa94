"""The edge's inbox: the answers of all requests under way, and how many there may be.

Owns the list of requests in flight. Knows nothing of HTTP or of what an answer holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from baton_common.errors import RequestFailed
from baton_common.frame_inbox import FrameInbox, FrameQueue
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_edge_api.interruption import Interrupt


class Desk:
    def __init__(self, node: Node, max_in_flight: int) -> None:
        self.node = node
        self._max_in_flight = max_in_flight
        self._inbox = FrameInbox(node.bus, subjects.reply_all(node.instance))
        self._in_flight: set[str] = set()
        self._leaving: dict[str, asyncio.Event] = {}
        """Of requests whose end is waited for."""
        self._trips: dict[str, Callable[[Interrupt], None]] = {}
        self._taking = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self) -> None:
        await self._inbox.start()
        self._taking = True

    async def stop_taking(self) -> None:
        """New requests are refused from here on; answers still come in."""
        self._taking = False

    async def finished(self) -> None:
        await self._empty.wait()

    async def stop(self) -> None:
        await self._inbox.stop()

    @property
    def num_held(self) -> int:
        return len(self._in_flight)

    def is_in_flight(self, request_id: str) -> bool:
        return request_id in self._in_flight

    @contextmanager
    def seat(self, request_id: str) -> Generator[FrameQueue, None, None]:
        """A place for one request and the queue of its frames. Raises RequestFailed."""
        self._check(request_id)
        queue = self._inbox.open(request_id)
        self._in_flight.add(request_id)
        self._empty.clear()
        try:
            yield queue
        finally:
            queue.close()
            self._in_flight.discard(request_id)
            self._trips.pop(request_id, None)
            if leaving := self._leaving.pop(request_id, None):
                leaving.set()
            if not self._in_flight:
                self._empty.set()

    async def left(self, request_id: str, seconds: float) -> None:
        """Waits so long for its end, if it is under way here."""
        if request_id not in self._in_flight:
            return
        leaving = self._leaving.setdefault(request_id, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await leaving.wait()

    def can_be_ended(self, request_id: str, trip: Callable[[Interrupt], None]) -> None:
        """From here on `end_all` reaches this request too."""
        self._trips[request_id] = trip

    def end_all(self) -> None:
        """For requests that outlasted the drain: each client is told, and the relay too."""
        for trip in list(self._trips.values()):
            error = self._refusal(
                "shutting_down", "This instance had to stop before the answer was complete."
            )
            trip(Interrupt(error, "lease_lost"))

    def _check(self, request_id: str) -> None:
        if not self._taking:
            text = "This instance takes no requests now. Send it again: another one will take it."
            raise RequestFailed(self._refusal("shutting_down", text))
        if request_id in self._in_flight:
            text = f"Request {request_id} is already under way. Use a new x-request-id."
            raise RequestFailed.because("conflict", text, param="x-request-id")
        if len(self._in_flight) >= self._max_in_flight:
            text = f"{self._max_in_flight} requests are under way here, and no more fit. Try again shortly."
            raise RequestFailed(self._refusal("stop_busy", text))

    def _refusal(self, code: ErrorCode, text: str) -> ErrorBody:
        return ErrorBody(code=code, message=text, stop="edge_api", retry_after_seconds=1)
