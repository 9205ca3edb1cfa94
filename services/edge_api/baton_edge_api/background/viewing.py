"""A client that follows the events of a response in the background, from any of them on, on any edge.

Owns the order of what it is told: events as they are kept, and once the response's end is in the books the
event that says how it ended, with the same Response that is given from then on. Who is cut off goes on behind
the last event that it got.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass

from starlette.types import ASGIApp

from baton_common.errors import BusError, RequestFailed
from baton_contracts.errors import ErrorBody
from baton_contracts.queries import StoredResponse
from baton_contracts.records import ResponseStatus
from baton_edge_api import sse
from baton_edge_api.answers import SSE_HEADERS
from baton_edge_api.background.event_log import END
from baton_edge_api.background.records import BackgroundRecord, entry_of
from baton_edge_api.background.store import BackgroundStore, away
from baton_edge_api.bucket import NatsBucket
from baton_edge_api.piecewise import PiecewiseAnswer
from baton_edge_api.record_mirror import RecordMirror
from baton_edge_api.refusals import bad_value
from baton_edge_api.responses.books_desk import BooksDesk, stored_object
from baton_edge_api.responses.events import error_event, event, numbered
from baton_edge_api.responses.ids import key_of
from baton_edge_api.turns import Turns

_LOOK_SECONDS = 0.5
_LAST_EVENTS: dict[ResponseStatus, str] = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",  # there is no event of its own for it; the status says so
    "failed": "response.failed",
}


@dataclass(frozen=True)
class ViewingParts:
    store: BackgroundStore
    mirror: RecordMirror[BackgroundRecord]
    events: NatsBucket
    books: BooksDesk
    keep_alive_seconds: float
    write_seconds: float


@dataclass(frozen=True)
class Viewed:
    tenant_id: str
    response_id: str
    request_id: str
    """Of who views."""

    @property
    def entry(self) -> str:
        return entry_of(self.tenant_id, key_of(self.response_id) or "")


class Viewers:
    def __init__(self, parts: ViewingParts, max_viewers: int, max_of_tenant: int) -> None:
        self._parts = parts
        self._turns = Turns(max_viewers, max_of_tenant, "streams of responses in the background")
        self._stopping = asyncio.Event()

    async def turn(self, tenant_id: str, held: AsyncExitStack) -> None:
        """A place for one of them, until `held` is let go. Raises RequestFailed."""
        await held.enter_async_context(self._turns.turn(tenant_id))

    async def follow(self, viewed: Viewed, after: int) -> ASGIApp:
        """Raises RequestFailed: there is no such response, or its events are not kept."""
        async with AsyncExitStack() as held:
            await self.turn(viewed.tenant_id, held)
            view = View(self._parts, viewed, after, self._stopping)
            pieces = await held.enter_async_context(aclosing(view.pieces()))
            return self._answer(await anext(pieces, b""), pieces, held.pop_all())

    async def follow_new(self, viewed: Viewed, begun: bytes, held: AsyncExitStack) -> ASGIApp:
        """From the `begun` events on, which nobody needs to ask for. Lets `held` go at the end."""
        after = max(number for number, _ in numbered(begun))
        view = View(self._parts, viewed, after, self._stopping, num_events=after + 1)
        pieces = await held.enter_async_context(aclosing(view.pieces()))
        return self._answer(begun, pieces, held)

    def _answer(self, first: bytes, pieces: AsyncGenerator[bytes, None], held: AsyncExitStack) -> ASGIApp:
        async def all_pieces() -> AsyncGenerator[bytes, None]:
            yield first
            async for piece in pieces:
                yield piece

        return PiecewiseAnswer(all_pieces(), SSE_HEADERS, held, self._parts.write_seconds)

    def stop(self) -> None:
        """Each is told that it must go on elsewhere."""
        self._stopping.set()


class View:
    """One client's."""

    def __init__(
        self,
        parts: ViewingParts,
        viewed: Viewed,
        after: int,
        stopping: asyncio.Event,
        *,
        num_events: int = 0,
    ) -> None:
        self._parts = parts
        self._viewed = viewed
        self._stopping = stopping
        self._told = after
        """The last event that the client knows."""
        self._num_events = num_events
        """That are kept, as far as we have read."""
        self._now = asyncio.get_running_loop().time
        self._last_piece = self._now()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The first one comes as soon as it is known that there is something to follow, and may be empty.
        Raises RequestFailed before it, unless the client has got events already; behind it the client is told
        in the stream."""
        has_begun = self._num_events > 0
        try:
            async with aclosing(self._events()) as events:
                async for piece in events:
                    has_begun = True
                    if piece:
                        self._last_piece = self._now()
                    yield piece
        except (RequestFailed, BusError) as error:
            failed = error if isinstance(error, RequestFailed) else away(error)
            if not has_begun:
                raise failed from error
            yield error_event(failed.error, max(self._told, 0))

    async def _events(self) -> AsyncGenerator[bytes, None]:
        record = await self._parts.store.find(self._viewed.tenant_id, self._viewed.response_id)
        if record is None:
            await self._kept()
        elif not record.streams:
            raise _not_streamed()
        async with aclosing(self._kept_events(is_made=record is not None)) as events:
            async for piece in events:
                yield piece
        while await self._is_made():
            yield self._ping()
        stored = await self._kept()
        if self._told < self._num_events:
            kind = _LAST_EVENTS[stored.status]
            yield event(kind, {"response": stored_object(stored)}, self._num_events)

    async def _kept_events(self, *, is_made: bool) -> AsyncGenerator[bytes, None]:
        """Until their end, or until the response's own end where they have none."""
        while True:  # once a connection to the bus
            async with aclosing(self._parts.events.follow(f"{self._viewed.entry}.>")) as values:
                async for value in values:
                    self._check_not_stopping()
                    if value == END:
                        return
                    if value is not None:
                        yield self._news(value)
                    elif not is_made:
                        if not self._num_events:
                            raise _not_streamed()
                        return
                    else:
                        yield self._ping()
                        is_made = self._viewed.entry in self._parts.mirror.records or await self._find()

    def _news(self, value: bytes) -> bytes:
        """What the client has not had yet. Raises RequestFailed if something before it is missing."""
        news: list[bytes] = []
        for number, kept in numbered(value):
            self._num_events = max(self._num_events, number + 1)
            if number <= self._told:
                continue
            if number != self._told + 1:
                raise bad_value("starting_after", f"the events before {number} are no longer kept.")
            self._told = number
            news.append(kept)
        return b"".join(news)

    def _ping(self) -> bytes:
        """Nothing, or a comment after a silence."""
        is_silent = self._now() - self._last_piece >= self._parts.keep_alive_seconds
        return sse.PING if is_silent else b""

    async def _is_made(self) -> bool:
        """False once its end is in the books and its entry gone; looks for half a second at most."""
        self._check_not_stopping()
        with self._parts.mirror.leaving(self._viewed.entry) as leaving:
            if not await self._find():
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), _LOOK_SECONDS)
        return True

    async def _find(self) -> bool:
        viewed = self._viewed
        return await self._parts.store.find(viewed.tenant_id, viewed.response_id) is not None

    async def _kept(self) -> StoredResponse:
        viewed = self._viewed
        found = await self._parts.books.response(viewed.response_id, viewed.tenant_id, viewed.request_id)
        if not found:
            text = "There is no such stored response."
            raise RequestFailed.because("not_found", text, param="response_id")
        return found[0]

    def _check_not_stopping(self) -> None:
        if self._stopping.is_set():
            text = "This instance stops. Ask again with starting_after: another one goes on."
            error = ErrorBody(code="shutting_down", message=text, stop="edge_api", retry_after_seconds=1)
            raise RequestFailed(error)


def _not_streamed() -> RequestFailed:
    text = "the events of this response are not kept, or no longer: fetch it whole."
    return bad_value("stream", text)
