"""One line of a batch: asked like any request, again while there is no room for it, until it has an answer.

Owns its places in the room, one a try. Knows nothing of the batch around it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.types import ASGIApp

from baton_contracts.envelope import Tenant
from baton_edge_api.batches.lines import Line
from baton_edge_api.batches.room import Room, Ticket
from baton_edge_api.exchange import Inside
from baton_edge_api.inside import InsideAnswer, InsideCall, Tries, unless


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
        tries = Tries()
        while True:
            if ticket is None and (ticket := await self.enter(errand, leaving)) is None:
                return None
            answer = await self._ask(errand, ticket, leaving)
            ticket = None
            if answer is None:
                if leaving.is_set():
                    return None
                continue  # it stepped aside
            seconds = tries.pause_after(answer)
            if seconds is None:
                return answer
            await unless(leaving, self._pause(seconds))

    async def _ask(self, errand: Errand, ticket: Ticket, leaving: asyncio.Event) -> InsideAnswer | None:
        body = json.dumps(errand.line.body).encode()
        call = InsideCall(self._app, errand.endpoint, body, Inside(errand.tenant), errand.request_id)
        try:
            return await call.run(ticket.step_aside, leaving)
        finally:
            self._room.leave(ticket)


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
