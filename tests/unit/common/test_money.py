"""Amounts are whole pico-dollars: prices known beforehand give costs known beforehand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_common.catalog import load_catalog
from baton_common.money import NotMoney, Price, dollars, parse_dollars, parse_price
from baton_contracts.frames import Usage


def test_a_price_per_million_is_picos_a_token() -> None:
    assert parse_price("0.15") == 150_000
    assert parse_price("0.0375") == 37_500
    assert parse_price("0") == 0
    assert parse_price("100000") == 100_000_000_000


@pytest.mark.parametrize("text", ["", "-1", "NaN", "Infinity", "0.0000001", "1,5", "100001", "1e9"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(NotMoney):
        parse_price(text)


def test_cached_prompt_tokens_have_their_own_price() -> None:
    price = Price(parse_price("2.50"), parse_price("1.25"), parse_price("10"))
    cost = price.cost(Usage(prompt_tokens=1000, cached_tokens=400, completion_tokens=200))
    assert dollars(cost) == "0.004"  # 600 × 2.50 + 400 × 1.25 + 200 × 10 for a million each
    assert price.at_most(1000, 200) == parse_dollars("0.0045")


def test_more_cached_than_prompt_is_not_paid_back() -> None:
    assert Price(2, 1, 0).cost(Usage(prompt_tokens=3, cached_tokens=9)) == 3


def test_amounts_are_written_plainly() -> None:
    assert [dollars(parse_dollars(text)) for text in ("12", "$0.5", "0.000000000001")] == [
        "12.00",
        "0.50",
        "0.000000000001",
    ]
    assert dollars(-1_500_000_000_000) == "-1.50"


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_every_amount_survives_its_text(picos: int) -> None:
    assert parse_dollars(dollars(picos)) == picos


def test_the_models_of_the_catalog_have_prices() -> None:
    catalog = load_catalog()
    usage = Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)
    assert dollars(catalog.price_of("smollm2-135m").cost(usage)) == "0.06"
    assert dollars(catalog.price_of("qwen2.5-coder-0.5b").cost(usage)) == "0.15"
    assert catalog.price_of("nobody's").cost(usage) == 0


def test_a_name_stands_for_those_who_may_answer() -> None:
    catalog = load_catalog()
    assert catalog.may_stand_for("auto") == ("smollm2-135m", "qwen2.5-coder-0.5b")
    assert catalog.may_stand_for("default") == ("smollm2-135m",)
    assert catalog.may_stand_for("anything") == ("anything",)
