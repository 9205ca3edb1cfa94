"""What is before a response, at the moment at which that comes into the books."""

from __future__ import annotations

from typing import Any, cast

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.envelope import Tenant
from baton_contracts.prompt import Message
from baton_contracts.queries import StoredResponse
from baton_edge_api.responses.chain import Chain
from baton_edge_api.responses.reading import read_response

TENANT = Tenant(tenant_id="acme", team="core", key_id="key")
BEFORE = f"resp_{'0' * 40}"
ITEM = '[{"type":"message","role":"user","content":"Hello?"}]'
KEPT = StoredResponse(response_id=BEFORE, status="completed", input=ITEM, output="[]")


class Places:
    """Books and bucket. `ends_after` so many looks the response leaves the bucket for the books."""

    def __init__(self, ends_after: int, *, is_known: bool = True) -> None:
        self._ends_after = ends_after
        self._is_known = is_known
        self.looks: list[str] = []

    async def chain(self, *_: str) -> tuple[StoredResponse, ...]:
        return (KEPT,) if self._look("books") and self._is_known else ()

    async def find(self, *_: str) -> str | None:
        return "entry" if not self._look("bucket") and self._is_known else None

    def _look(self, where: str) -> bool:
        """Whether it has ended."""
        self.looks.append(where)
        return len(self.looks) > self._ends_after


async def messages_before(places: Places) -> tuple[Message, ...]:
    chain = Chain(cast(Any, places), cast(Any, places), 1000)
    body = {"model": "m", "input": "And now?", "previous_response_id": BEFORE}
    question = read_response(body, strict=False, max_text_chars=1000)
    return (await chain.complete(question, TENANT, "f" * 32)).chat.messages


async def test_one_that_is_in_the_books_is_asked_for_once() -> None:
    places = Places(ends_after=0)
    assert [message.text for message in await messages_before(places)] == ["Hello?", "And now?"]
    assert places.looks == ["books"]


async def test_one_that_ends_between_the_looks_is_not_missed() -> None:
    places = Places(ends_after=1)
    assert [message.text for message in await messages_before(places)] == ["Hello?", "And now?"]
    assert places.looks == ["books", "bucket", "books"]


async def test_one_that_is_being_made_is_no_unknown_one() -> None:
    with pytest.raises(RequestFailed, match="still being made") as refused:
        await messages_before(Places(ends_after=9))
    assert (refused.value.error.status, refused.value.error.param) == (400, "previous_response_id")


async def test_an_unknown_one_is_not_found() -> None:
    with pytest.raises(RequestFailed) as refused:
        await messages_before(Places(ends_after=0, is_known=False))
    assert (refused.value.error.status, refused.value.error.param) == (404, "previous_response_id")
