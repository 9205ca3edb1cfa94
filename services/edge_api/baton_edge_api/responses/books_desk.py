"""Questions to the books about responses.

Owns the wait for an answer that is still under way on this edge: its client may ask for it the moment that it
has left.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson

from baton_contracts import subjects
from baton_contracts.queries import BooksQuery, BooksReply, StoredResponse
from baton_edge_api.actor import Desk
from baton_edge_api.responses.ids import request_id_of
from baton_edge_api.side_questions import ask

_UNDER_WAY_SECONDS = 3.0


class BooksDesk:
    def __init__(self, desk: Desk, query_timeout: float) -> None:
        self._desk = desk
        self._query_timeout = query_timeout

    async def response(self, response_id: str, tenant_id: str, request_id: str) -> tuple[StoredResponse, ...]:
        return await self._ask("response", response_id, tenant_id, request_id)

    async def chain(self, response_id: str, tenant_id: str, request_id: str) -> tuple[StoredResponse, ...]:
        """A page of it, newest first."""
        return await self._ask("response_chain", response_id, tenant_id, request_id)

    async def delete(self, response_id: str, tenant_id: str, request_id: str) -> tuple[StoredResponse, ...]:
        """What it was."""
        return await self._ask("delete_response", response_id, tenant_id, request_id)

    async def _ask(
        self,
        kind: Literal["response", "response_chain", "delete_response"],
        response_id: str,
        tenant_id: str,
        request_id: str,
    ) -> tuple[StoredResponse, ...]:
        """None of what can't be an id is asked for. Raises RequestFailed."""
        own_request = request_id_of(response_id)
        if own_request is None:
            return ()
        if own_request != request_id:
            await self._desk.left(own_request, _UNDER_WAY_SECONDS)
        query = BooksQuery(kind=kind, tenant_id=tenant_id, response_id=response_id)
        reply = await ask(
            self._desk.node.bus,
            subjects.books(request_id),
            query,
            BooksReply,
            to="after_answer",
            seconds=self._query_timeout,
        )
        return reply.responses


def stored_object(stored: StoredResponse) -> dict[str, Any]:
    """The Response, as its client gets it."""
    return orjson.loads(stored.body) | {"status": stored.status, "output": orjson.loads(stored.output)}
