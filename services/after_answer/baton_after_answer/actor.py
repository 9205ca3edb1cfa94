"""The inbox of questions: `BooksQuery` in, `BooksReply` out, each tenant in its own books."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from baton_after_answer.books import Books, BooksAway
from baton_common.errors import RequestFailed
from baton_contracts.errors import ErrorBody
from baton_contracts.queries import BooksQuery, BooksReply

T = TypeVar("T")

InDatabaseThread = Callable[[Callable[[], BooksReply]], Awaitable[BooksReply]]


class BooksDesk:
    """`barrier` returns when everything stored before is committed; `in_thread` runs what blocks."""

    def __init__(
        self, books: Books, *, barrier: Callable[[], Awaitable[None]], in_thread: InDatabaseThread
    ) -> None:
        self._books = books
        self._barrier = barrier
        self._in_thread = in_thread

    async def answer(self, _request_id: str, query: BooksQuery) -> BooksReply:
        if query.kind == "conversation" and not query.conversation_id:
            raise RequestFailed.because(
                "missing_required_parameter",
                "A question for a conversation needs its conversation_id.",
                param="conversation_id",
            )
        await self._barrier()
        try:
            return await self._in_thread(lambda: self._look_up(query))
        except BooksAway as error:
            text = f"The database of the books is away ({error}). Try again shortly."
            raise RequestFailed(
                ErrorBody(code="stop_unresponsive", message=text, stop="after_answer", retry_after_seconds=2)
            ) from None

    def _look_up(self, query: BooksQuery) -> BooksReply:
        if query.kind == "conversation":
            return BooksReply(turns=self._books.conversation(query.tenant_id, query.conversation_id or ""))
        return BooksReply(usage=self._books.usage(query.tenant_id, query.request_id))
