"""What /v1/usage?by=… asks of the books, and what it answers."""

from __future__ import annotations

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.queries import BooksQuery, BooksReply, UsageSum
from baton_edge_api.usage_question import sums_object, sums_query


def test_names_and_times() -> None:
    found = sums_query("acme", {"by": "key,model,key", "since": "2026-11-01", "until": "1796000000"})
    assert found == BooksQuery(
        kind="usage_sums",
        tenant_id="acme",
        by=("key", "model"),
        since=1_793_491_200.0,
        until=1_796_000_000.0,
    )
    only = sums_query("acme", {"by": "key", "team": "ops", "key_id": "k1", "model": ""})
    assert (only.team, only.key_id, only.model) == ("ops", "k1", None)
    assert sums_query("acme", {"by": "day", "since": "2026-11-01T02:00:00+02:00"}).since == 1_793_491_200.0


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"by": ""}, "by"),
        ({"by": "tenant"}, "by"),
        ({"by": "day", "since": "yesterday"}, "since"),
        ({"by": "day", "until": "99999999999999"}, "until"),
        ({"by": "day", "until": "-5"}, "until"),
        ({"by": "day", "page": "1" * 65}, "page"),
        ({"by": "day", "team": "t" * 129}, "team"),
    ],
)
def test_what_can_not_be_asked_names_its_parameter(params: dict[str, str], param: str) -> None:
    with pytest.raises(RequestFailed) as raised:
        sums_query("acme", params)
    assert (raised.value.error.status, raised.value.error.param) == (400, param)


def test_a_page_leads_to_the_next() -> None:
    told = sums_object(BooksReply(next_page="1000-1796000000.0"))
    assert (told["has_more"], told["next_page"]) == (True, "1000-1796000000.0")
    assert sums_query("acme", {"by": "day", "page": told["next_page"]}).page == told["next_page"]
    assert sums_query("acme", {"by": "day", "page": ""}).page is None


def test_money_is_in_plain_dollars() -> None:
    one = UsageSum(
        model="m",
        requests=2,
        attempts=3,
        prompt_tokens=5,
        cached_tokens=1,
        completion_tokens=4,
        cost_picos=960_000,
    )
    told = sums_object(BooksReply(sums=(one,)))
    (row,) = told["data"]
    assert (told["has_more"], told["next_page"]) == (False, None)
    assert row == {
        "model": "m",
        "requests": 2,
        "attempts": 3,
        "prompt_tokens": 5,
        "cached_tokens": 1,
        "completion_tokens": 4,
        "cost_usd": "0.00000096",
    }
