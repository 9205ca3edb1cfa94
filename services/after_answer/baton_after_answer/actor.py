"""The inbox of questions: `BooksQuery` in, `BooksReply` out, each tenant in its own books."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from baton_after_answer.books import SUMS_SECONDS, Books, BooksAway, BooksSlow
from baton_after_answer.usage_sums import Page, SumsAsked
from baton_common.clock import Clock
from baton_common.errors import RequestFailed
from baton_common.responder import ResponderLimits
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.queries import BooksQuery, BooksReply

MOST_SUMS = ResponderLimits.concurrency // 2
"""Asked at once. They are added up one after another; the other turns are for those whose answers wait."""

InDatabaseThread = Callable[[Callable[[], BooksReply]], Awaitable[BooksReply]]


class BooksDesk:
    """`barrier` returns when everything stored before is committed; `in_thread` runs what blocks,
    `in_sums_thread` what blocks for long."""

    def __init__(
        self,
        books: Books,
        *,
        barrier: Callable[[], Awaitable[None]],
        in_thread: InDatabaseThread,
        in_sums_thread: InDatabaseThread,
        clock: Clock,
    ) -> None:
        self._books = books
        self._clock = clock
        self._barrier = barrier
        self._in_thread = in_thread
        self._in_sums_thread = in_sums_thread
        self._num_sums = 0

    async def answer(self, _request_id: str, query: BooksQuery) -> BooksReply:
        _require_id(query)
        if query.kind != "usage_sums":
            return await self._answer(query, self._in_thread)
        if self._num_sums >= MOST_SUMS:
            text = f"{MOST_SUMS} others ask for sums of the ledger. Try again shortly."
            raise _unavailable("stop_busy", text)
        self._num_sums += 1
        try:
            return await self._answer(query, self._in_sums_thread)
        finally:
            self._num_sums -= 1

    async def _answer(self, query: BooksQuery, in_thread: InDatabaseThread) -> BooksReply:
        await self._barrier()
        try:
            return await in_thread(lambda: self._look_up(query))
        except BooksAway as error:
            text = f"The database of the books is away ({error}). Try again shortly."
        except BooksSlow:
            text = f"Adding up takes longer than {SUMS_SECONDS:g} s. Ask for less: by `since` and `until`."
        raise _unavailable("stop_unresponsive", text)

    def _look_up(self, query: BooksQuery) -> BooksReply:
        books, tenant_id, response_id = self._books, query.tenant_id, query.response_id or ""
        match query.kind:
            case "conversation":
                return BooksReply(turns=books.conversation(tenant_id, query.conversation_id or ""))
            case "usage":
                ids = (query.request_id, *query.more_request_ids) if query.request_id else ()
                return BooksReply(usage=books.usage(tenant_id, ids, query.since, query.until))
            case "usage_sums":
                asked = SumsAsked(tenant_id, query.by, query.since, query.key_id, query.team, query.model)
                page = self._page(query)
                sums, more = books.usage_sums(asked, page)
                return BooksReply(sums=sums, next_page=str(more) if more else None)
            case "response":
                return BooksReply(responses=books.response(tenant_id, response_id))
            case "response_chain":
                return BooksReply(responses=books.response_chain(tenant_id, response_id))
            case "delete_response":
                found = books.delete_response(tenant_id, response_id, self._clock.wall())
                return BooksReply(responses=found)

    def _page(self, query: BooksQuery) -> Page:
        if not query.page:
            return Page(self._clock.wall() if query.until is None else query.until)
        try:
            return Page.parse(query.page)
        except ValueError:
            text = "There is no such page. Ask without one, and go on by its next_page."
            raise RequestFailed.because("invalid_value", text, param="page") from None


def _unavailable(code: ErrorCode, text: str) -> RequestFailed:
    return RequestFailed(ErrorBody(code=code, message=text, stop="after_answer", retry_after_seconds=2))


def _require_id(query: BooksQuery) -> None:
    if query.kind in ("usage", "usage_sums"):
        return
    param = "conversation_id" if query.kind == "conversation" else "response_id"
    if not getattr(query, param):
        text = f"A question of kind {query.kind} needs its {param}."
        raise RequestFailed.because("missing_required_parameter", text, param=param)
