"""What clients ask of the response cache, in the words of HTTP."""

from __future__ import annotations

import pytest

from baton_common.errors import RequestFailed
from baton_edge_api.cache_control import cache_wish


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        ("no-store", {"use_cache": False}),
        ("No-Store, max-age=5", {"use_cache": False}),
        ("no-cache", {"cache_max_age": 0.0}),
        ("max-age=30", {"cache_max_age": 30.0}),
        ('private, max-age="30"', {"cache_max_age": 30.0}),
        ("max-age=nan", {}),
        ("max-age=-1", {}),
        ("public", {}),
        ("", {}),
    ],
)
def test_directives(header: str, fields: dict[str, object]) -> None:
    wish = cache_wish(header, None)
    assert wish is not None
    assert wish.fields == fields


def test_nothing_asked_costs_nothing() -> None:
    assert cache_wish(None, None) is None


def test_a_time_to_live() -> None:
    wish = cache_wish(None, "90")
    assert wish is not None
    assert wish.fields == {"cache_ttl": 90.0}
    for bad in ("0", "-1", "soon", "inf", "1e9"):
        with pytest.raises(RequestFailed) as refused:
            cache_wish(None, bad)
        assert refused.value.error.param == "x-baton-cache-ttl"
