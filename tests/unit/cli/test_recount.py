"""A recount takes the ledger's word on this one key, however many there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from baton_cli.limits import LimitBook
from baton_common.spending import Payer
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.limits import AccountState, Budget, LateRun, LimitRule, Run, Slot
from baton_contracts.queries import BooksQuery, BooksReply, UsageSum
from baton_contracts.records import UsageRecord

RULE = LimitRule(budget=Budget(picos=10**12, period="total"))


class Books:
    """Books that do not know the question for one key: they tell of all."""

    def __init__(self) -> None:
        self.asked: list[BooksQuery] = []

    async def request(self, _subject: str, payload: bytes, *, timeout: float) -> Any:
        self.asked.append(BooksQuery.decode(payload))
        counts = dict.fromkeys(
            ("requests", "attempts", "prompt_tokens", "cached_tokens", "completion_tokens"), 1
        )
        sums = [UsageSum(key_id=f"key_{number}", cost_picos=number, **counts) for number in range(1000)]
        return SimpleNamespace(data=BooksReply(sums=tuple(sums)).encode())


class Bucket:
    def __init__(self, state: AccountState | None = None) -> None:
        self.state = state or AccountState()

    async def get(self, _name: str) -> Any:
        return SimpleNamespace(value=self.state.encode(), revision=1)

    async def update(self, _name: str, value: bytes, *, last: int) -> None:
        assert last == 1
        self.state = AccountState.decode(value)


async def test_it_asks_for_its_own_key_and_counts_no_other() -> None:
    books = Books()
    book = LimitBook(cast(Any, Bucket()), cast(Any, books), lambda: 1_796_000_000.0)
    recounted = await book.recount("key.k", RULE, Payer("key", "key_7", {"acme"}))
    assert recounted == (0, 7)
    assert books.asked == [BooksQuery(kind="usage_sums", tenant_id="acme", by=("key",), key_id="key_7")]


class BooksOfOneRun:
    """1000 spent in all, 300 of it by a request that its edge has not settled yet."""

    async def request(self, _subject: str, payload: bytes, *, timeout: float) -> Any:
        query = BooksQuery.decode(payload)
        counts = dict.fromkeys(
            ("requests", "attempts", "prompt_tokens", "cached_tokens", "completion_tokens"), 1
        )
        if query.kind == "usage_sums":
            reply = BooksReply(sums=(UsageSum(key_id="k", cost_picos=1000, **counts),))
        else:
            assert (query.tenant_id, query.request_id) == ("acme", RUN.request_id)
            reply = BooksReply(usage=(row(RUN.run_id, 300), row("0" * 8, 50)))
        return SimpleNamespace(data=reply.encode())


RUN = Run("acme", "a" * 32, "b" * 8)


def row(run_id: str, cost_picos: int) -> UsageRecord:
    return UsageRecord(
        request_id=RUN.request_id,
        run_id=run_id,
        attempt=1,
        tenant=Tenant(tenant_id="acme", key_id="k"),
        model="small",
        replica="engine-1",
        usage=Usage(prompt_tokens=1, completion_tokens=1),
        outcome="finished",
        cost_picos=cost_picos,
        started_at=1.0,
        ended_at=2.0,
    )


async def test_what_is_still_to_be_settled_is_not_counted_twice() -> None:
    bucket = Bucket(AccountState(period="total", spent_picos=1, slots={"e": Slot(runs={RUN.name: 0})}))
    book = LimitBook(cast(Any, bucket), cast(Any, BooksOfOneRun()), lambda: 1_796_000_000.0)
    assert await book.recount("key.k", RULE, Payer("key", "k", {"acme"})) == (1, 700)
    assert bucket.state.spent_picos == 700
    assert RUN.name in bucket.state.slots["e"].runs


class BooksThatWrite(BooksOfOneRun):
    """The request's row is stored right after the first sum."""

    def __init__(self) -> None:
        self.sums = 0

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> Any:
        is_sum = BooksQuery.decode(payload).kind == "usage_sums"
        self.sums += is_sum
        reply = BooksReply.decode((await super().request(subject, payload, timeout=timeout)).data)
        if is_sum and self.sums == 1:
            whole = reply.sums[0]
            reply = BooksReply(sums=(whole.model_copy(update={"cost_picos": whole.cost_picos - 300}),))
        elif not self.sums:
            reply = BooksReply(usage=())
        return SimpleNamespace(data=reply.encode())


async def test_a_row_that_is_stored_meanwhile_is_neither_lost_nor_counted_twice() -> None:
    bucket = Bucket(AccountState(period="total", spent_picos=1, slots={"e": Slot(runs={RUN.name: 0})}))
    books = BooksThatWrite()
    book = LimitBook(cast(Any, bucket), cast(Any, books), lambda: 1_796_000_000.0)
    assert await book.recount("key.k", RULE, Payer("key", "k", {"acme"})) == (1, 700)
    assert books.sums == 2


async def test_of_a_late_request_what_was_counted_stays_counted_and_the_rest_is_to_come() -> None:
    """The ledger has 300 of it by now; 100 were there when its lost edge was settled."""
    late = {RUN.name: LateRun(picos=100, since=1_796_000_000.0)}
    bucket = Bucket(AccountState(period="total", spent_picos=1, late=late))
    book = LimitBook(cast(Any, bucket), cast(Any, BooksOfOneRun()), lambda: 1_796_000_000.0)
    assert await book.recount("key.k", RULE, Payer("key", "k", {"acme"})) == (1, 800)
    assert bucket.state.late == late


async def test_in_a_new_period_nothing_of_a_late_request_is_counted_yet() -> None:
    late = {RUN.name: LateRun(picos=100, since=1_796_000_000.0)}
    bucket = Bucket(AccountState(period="2026-11-29", spent_picos=1, late=late))
    book = LimitBook(cast(Any, bucket), cast(Any, BooksOfOneRun()), lambda: 1_796_000_000.0)
    await book.recount("key.k", RULE, Payer("key", "k", {"acme"}))
    assert bucket.state.late == {RUN.name: LateRun(since=1_796_000_000.0)}
    assert bucket.state.spent_picos == 700
