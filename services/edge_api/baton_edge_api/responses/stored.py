"""GET and DELETE /v1/responses/ID, GET /v1/responses/ID/input_items: stored responses, each tenant's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from baton_common.errors import RequestFailed
from baton_contracts.queries import StoredResponse
from baton_edge_api.answers import NO_STORE, Answer
from baton_edge_api.exchange import exchange_of, header
from baton_edge_api.keys import KeyRing
from baton_edge_api.refusals import bad_value, not_served
from baton_edge_api.responses.books_desk import BooksDesk
from baton_edge_api.responses.items import Item
from baton_edge_api.side_endpoints import to_response


@dataclass(frozen=True)
class StoredResponses:
    ring: KeyRing
    books: BooksDesk

    async def get(self, request: Request) -> Response:
        if request.query_params.get("stream", "false") != "false":
            raise not_served("stream", "a stored response is given whole.")
        stored = await self._stored(request)
        return _json(orjson.loads(stored.body) | {"output": orjson.loads(stored.output)})

    async def delete(self, request: Request) -> Response:
        tenant_id, response_id = self._tenant_id(request), _response_id(request)
        if not await self.books.delete(response_id, tenant_id, exchange_of(request.scope).request_id):
            raise _not_found()
        return _json({"id": response_id, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        page = _read_page(request)
        stored = await self._stored(request)
        items: list[Item] = orjson.loads(stored.input)
        return _json(page.of(items))

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


def _response_id(request: Request) -> str:
    return request.path_params["response_id"]


def _not_found() -> RequestFailed:
    return RequestFailed.because("not_found", "There is no such stored response.", param="response_id")


def _json(value: object) -> Response:
    return to_response(Answer(200, orjson.dumps(value), [NO_STORE]))
