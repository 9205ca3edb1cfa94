"""A recount takes the ledger's word on this one key, however many there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from baton_cli.limits import LimitBook
from baton_contracts.limits import Budget, LimitRule
from baton_contracts.queries import BooksQuery, BooksReply, UsageSum

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
    async def get(self, _name: str) -> Any:
        return SimpleNamespace(value=b"{}", revision=1)

    async def update(self, _name: str, _value: bytes, *, last: int) -> None:
        assert last == 1


async def test_it_asks_for_its_own_key_and_counts_no_other() -> None:
    books = Books()
    book = LimitBook(cast(Any, Bucket()), cast(Any, books), lambda: 1_796_000_000.0)
    recounted = await book.recount("key.k", RULE, tenant_ids={"acme"}, by="key", name="key_7")
    assert recounted == (0, 7)
    assert books.asked == [BooksQuery(kind="usage_sums", tenant_id="acme", by=("key",), key_id="key_7")]
