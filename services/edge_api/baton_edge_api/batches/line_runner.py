"""One line of a batch: asked like any request, again while there is no room for it, until it has an answer.

Owns when an answer counts and when the line is asked again. Knows nothing of the batch around it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from starlette.types import ASGIApp

from baton_contracts.envelope import Tenant
from baton_edge_api.batches.inside import InsideAnswer, InsideCall
from baton_edge_api.batches.lines import Line
from baton_edge_api.batches.room import Room, Ticket
from baton_edge_api.exchange import Inside

_LONGEST_PAUSE = 60.0
_UPSTREAM_TRIES = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Errand:
    """A line and for whom it is run."""

    line: Line
    endpoint: str
    tenant: Tenant
    request_id: str


class LineRunner:
    def __init__(
        self, app: ASGIApp, room: Room, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._app = app
        self._room = room
        self._pause = pause

    async def enter(self, errand: Errand, leaving: asyncio.Event) -> Ticket | None:
        """None: `leaving` was set first."""
        return await unless(leaving, self._room.enter(errand.endpoint, errand.line.model))

    async def answer(
        self, errand: Errand, ticket: Ticket | None, leaving: asyncio.Event
    ) -> InsideAnswer | None:
        """The answer that counts; None: `leaving` was set first. Gives the ticket back."""
        failures = 0
        while True:
            if ticket is None and (ticket := await self.enter(errand, leaving)) is None:
                return None
            answer = await self._ask(errand, ticket, leaving)
            ticket = None
            if answer is None:
                if leaving.is_set():
                    return None
                continue  # it stepped aside
            failures += answer.status == 502
            seconds = pause_after(answer)
            if seconds is None or failures >= _UPSTREAM_TRIES:
                return answer
            await unless(leaving, self._pause(seconds))

    async def _ask(self, errand: Errand, ticket: Ticket, leaving: asyncio.Event) -> InsideAnswer | None:
        body = json.dumps(errand.line.body).encode()
        call = InsideCall(self._app, errand.endpoint, body, Inside(errand.tenant), errand.request_id)
        watches = [asyncio.create_task(_leave_at(event, call)) for event in (ticket.step_aside, leaving)]
        try:
            return await call.run()
        finally:
            for watch in watches:
                watch.cancel()
            self._room.leave(ticket)


async def _leave_at(event: asyncio.Event, call: InsideCall) -> None:
    await event.wait()
    call.leave()


async def unless(event: asyncio.Event, work: Awaitable[T]) -> T | None:
    """What `work` gives; None if the event came first."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        waiting.cancel()


def pause_after(answer: InsideAnswer) -> float | None:
    """Seconds until another try makes sense; None: this answer counts."""
    if answer.status not in (429, 502, 503) or answer.headers.get("x-should-retry") == "false":
        return None
    asked = answer.headers.get("retry-after", "1")
    return min(_LONGEST_PAUSE, float(asked)) if asked.isdigit() else 1.0


def refusal_of(line: Line) -> InsideAnswer | None:
    """For what an endpoint would do, and a batch can't."""
    if not line.body.get("stream"):
        return None
    error: dict[str, Any] = {
        "message": "stream: a line of a batch can't be streamed. Leave it out.",
        "type": "invalid_request_error",
        "param": "stream",
        "code": "unsupported_parameter",
    }
    return InsideAnswer(400, {}, orjson.dumps({"error": error}))
