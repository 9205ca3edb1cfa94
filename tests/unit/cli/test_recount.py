"""A recount takes the ledger's word, and only if the ledger has said one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from baton_cli.errors import CliError
from baton_cli.limits import LimitBook
from baton_contracts.limits import Budget, LimitRule
from baton_contracts.queries import BooksReply, UsageSum

RULE = LimitRule(budget=Budget(picos=10**12, period="total"))


class Books:
    """Tells of so many keys."""

    def __init__(self, num_keys: int) -> None:
        counts = {
            "requests": 1,
            "attempts": 1,
            "prompt_tokens": 1,
            "cached_tokens": 0,
            "completion_tokens": 1,
        }
        sums = [UsageSum(key_id=f"key_{number}", cost_picos=7, **counts) for number in range(num_keys)]
        self._reply = BooksReply(sums=tuple(sums)).encode()

    async def request(self, *_: object, timeout: float) -> Any:
        return SimpleNamespace(data=self._reply)


async def test_a_key_of_which_the_books_do_not_tell_is_not_set_to_nothing() -> None:
    book = LimitBook(cast(Any, None), cast(Any, Books(1000)), lambda: 1_796_000_000.0)
    with pytest.raises(CliError, match="of the 1000 that cost most only, and cheap is none"):
        await book.recount("key.cheap", RULE, tenant_ids={"acme"}, by="key", name="cheap")
