"""Stored responses, each tenant's own: look up, follow, forget, cancel, list the input.

One that is made in the background is in its bucket until its end is in the books: that is asked first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from baton_common.errors import RequestFailed
from baton_contracts.queries import StoredResponse
from baton_edge_api.answers import NO_STORE, Answer
from baton_edge_api.background.desk import BackgroundDesk
from baton_edge_api.background.records import BackgroundRecord
from baton_edge_api.background.viewing import Viewed
from baton_edge_api.exchange import exchange_of, header
from baton_edge_api.keys import KeyRing
from baton_edge_api.refusals import bad_value
from baton_edge_api.responses.books_desk import BooksDesk, stored_object
from baton_edge_api.responses.items import Item
from baton_edge_api.side_endpoints import to_response


@dataclass(frozen=True)
class StoredResponses:
    ring: KeyRing
    books: BooksDesk
    background: BackgroundDesk

    async def get(self, request: Request) -> ASGIApp:
        after = _read_after(request)
        if after is not None:
            viewed = Viewed(
                self._tenant_id(request), _response_id(request), exchange_of(request.scope).request_id
            )
            return await self.background.follow(viewed, after)
        if waiting := await self._in_background(request):
            return _json(waiting.object())
        return _json(stored_object(await self._stored(request)))

    async def cancel(self, request: Request) -> Response:
        if waiting := await self.background.cancel(self._tenant_id(request), _response_id(request)):
            return _json(waiting.object())
        response = stored_object(await self._stored(request))
        if not response["background"]:
            text = "Only what was asked for with background can be cancelled so: close the connection."
            raise RequestFailed.because("invalid_value", text, param="response_id")
        return _json(response)

    async def delete(self, request: Request) -> Response:
        tenant_id, response_id = self._tenant_id(request), _response_id(request)
        if await self._in_background(request):
            text = "This response is still being made. Cancel it first, or wait for its end."
            raise RequestFailed.because("conflict", text, param="response_id")
        await self.background.forget(tenant_id, response_id)
        if not await self.books.delete(response_id, tenant_id, exchange_of(request.scope).request_id):
            raise _not_found()
        return _json({"id": response_id, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        page = _read_page(request)
        found = await self._in_background(request) or await self._stored(request)
        items: list[Item] = orjson.loads(found.input)
        return _json(page.of(items))

    async def _in_background(self, request: Request) -> BackgroundRecord | None:
        return await self.background.find(self._tenant_id(request), _response_id(request))

    async def _stored(self, request: Request) -> StoredResponse:
        tenant_id, own_id = self._tenant_id(request), exchange_of(request.scope).request_id
        found = await self.books.response(_response_id(request), tenant_id, own_id)
        if not found:
            raise _not_found()
        return found[0]

    def _tenant_id(self, request: Request) -> str:
        return self.ring.tenant_of(header(request.scope, b"authorization")).tenant_id


@dataclass(frozen=True)
class _Page:
    limit: int
    newest_first: bool
    after: str | None

    def of(self, items: list[Item]) -> dict[str, Any]:
        if self.newest_first:
            items = items[::-1]
        if self.after is not None:
            places = [index for index, item in enumerate(items) if item["id"] == self.after]
            if not places:
                raise bad_value("after", "there is no such item in the input.")
            items = items[places[0] + 1 :]
        data = items[: self.limit]
        return {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else "",
            "last_id": data[-1]["id"] if data else "",
            "has_more": len(items) > len(data),
        }


def _read_page(request: Request) -> _Page:
    query = request.query_params
    limit, order = query.get("limit", "20"), query.get("order", "desc")
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= 3 and 1 <= int(limit) <= 100):
        raise bad_value("limit", "must be a number from 1 to 100.")
    if order not in ("asc", "desc"):
        raise bad_value("order", "must be asc or desc.")
    return _Page(int(limit), order == "desc", query.get("after"))


def _read_after(request: Request) -> int | None:
    """The last event that a client knows which follows the events, -1 if it knows none; None: it doesn't."""
    query = request.query_params
    stream, after = query.get("stream", "false"), query.get("starting_after")
    if stream not in ("true", "false"):
        raise bad_value("stream", "must be true or false.")
    if stream == "false":
        if after is not None:
            raise bad_value("starting_after", "only allowed when stream is true.")
        return None
    if after is None:
        return -1
    if not (after.isascii() and after.isdecimal() and len(after) <= 9):
        raise bad_value("starting_after", "must be the sequence_number of an event.")
    return int(after)


def _response_id(request: Request) -> str:
    return request.path_params["response_id"]


def _not_found() -> RequestFailed:
    return RequestFailed.because("not_found", "There is no such stored response.", param="response_id")


def _json(value: object) -> Response:
    return to_response(Answer(200, orjson.dumps(value), [NO_STORE]))
