"""What a request refers to: the responses before it and single items, as the books have them.

Owns the lookups and their bounds: an unknown id is told before anything runs, nothing is left out silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import orjson

from baton_common.errors import RequestFailed
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.queries import StoredResponse
from baton_edge_api.background.store import BackgroundStore
from baton_edge_api.question import Question
from baton_edge_api.refusals import bad_value
from baton_edge_api.responses.books_desk import BooksDesk
from baton_edge_api.responses.ids import place_of
from baton_edge_api.responses.items import Item, Placed
from baton_edge_api.responses.reading import check_outputs, check_size
from baton_edge_api.responses.response_question import ResponseQuestion

MAX_CHAIN_JSON = 32 * 1024 * 1024
"""Characters of a chain as it is stored; how much text may be in it is judged once it is read."""
MAX_REFERENCED = 64
"""Responses that the references of one request may lead to."""


class Chain:
    def __init__(self, books: BooksDesk, background: BackgroundStore, max_text_chars: int) -> None:
        self._books = books
        self._background = background
        self._max_text_chars = max_text_chars

    async def complete(self, question: Question, tenant: Tenant, request_id: str) -> ResponseQuestion:
        """The question with all that it refers to. Raises RequestFailed: 404 for what isn't there."""
        assert isinstance(question, ResponseQuestion)
        if not question.refers_to_stored:
            return question
        tenant_id = tenant.tenant_id
        before = await self._before(question.wire.previous_response_id, tenant_id, request_id)
        items = await self._resolved(question.items, tenant_id, request_id)
        new = [
            Placed(item, "history" if given["type"] == "item_reference" else "client")
            for item, given in zip(items, question.items, strict=True)
        ]
        placed = [*before, *new]
        check_outputs(placed, items, question.conversation_id)
        completed = await asyncio.to_thread(question.with_stored, placed, items)
        check_size(completed.chat, self._max_text_chars)
        return completed

    async def _before(self, response_id: str | None, tenant_id: str, request_id: str) -> list[Placed]:
        """Oldest first."""
        newest_first: list[StoredResponse] = []
        room = MAX_CHAIN_JSON
        wanted = response_id
        while wanted is not None:
            page = await self._page(wanted, tenant_id, request_id)
            if not page:
                raise _unknown(wanted, is_first=wanted == response_id)
            newest_first += page
            room -= sum(len(each.input) + len(each.output) for each in page)
            if room < 0:
                raise _too_long()
            wanted = page[-1].previous_response_id
        return [Placed(item, "history") for stored in reversed(newest_first) for item in _items_of(stored)]

    async def _page(self, wanted: str, tenant_id: str, request_id: str) -> tuple[StoredResponse, ...]:
        """Of the chain. Nearly all are in the books: the bucket is only asked for those that are not, and may
        have come into the books while it was."""
        if page := await self._books.chain(wanted, tenant_id, request_id):
            return page
        if await self._background.find(tenant_id, wanted):
            raise bad_value("previous_response_id", "this response is still being made. Wait for its end.")
        return await self._books.chain(wanted, tenant_id, request_id)

    async def _resolved(self, items: tuple[Item, ...], tenant_id: str, request_id: str) -> tuple[Item, ...]:
        references = {
            index: item["id"] for index, item in enumerate(items) if item["type"] == "item_reference"
        }
        if not references:
            return items
        places = {index: place_of(item_id) for index, item_id in references.items()}
        wanted = {place.response_id for place in places.values() if place}
        if len(wanted) > MAX_REFERENCED:
            raise bad_value("input", f"its references lead to more than {MAX_REFERENCED} responses.")
        found: dict[str, Item] = {}
        for response_id in wanted:
            for stored in await self._books.response(response_id, tenant_id, request_id):
                found |= {item["id"]: item for item in _items_of(stored)}
        return tuple(
            _found(found, references[index], index) if index in references else item
            for index, item in enumerate(items)
        )


def _items_of(stored: StoredResponse) -> Iterable[Item]:
    return [*orjson.loads(stored.input), *orjson.loads(stored.output)]


def _found(found: dict[str, Item], item_id: str, index: int) -> Item:
    item = found.get(item_id)
    if item is None:
        text = "There is no such stored item. Send the item itself."
        raise RequestFailed(ErrorBody(code="not_found", message=text, param=f"input[{index}].id"))
    return item


def _unknown(response_id: str, *, is_first: bool) -> RequestFailed:
    what = "There is no such stored response"
    if not is_first:
        what = f"{response_id}, which this continues, is no longer stored"
    error = ErrorBody(
        code="not_found", message=f"{what}. Send the items themselves.", param="previous_response_id"
    )
    return RequestFailed(error)


def _too_long() -> RequestFailed:
    text = "What this continues has become too long to read. Begin anew, with what still matters."
    return RequestFailed.because("request_too_large", text, param="previous_response_id")
