from __future__ import annotations

import pytest

from baton_common.moments import parse_moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0.0),
        ("2026-11-29", 1_795_910_400.0),
        ("2026-11-29T12:30:00Z", 1_795_955_400.0),
        ("2026-11-29T12:30:00+02:00", 1_795_948_200.0),
        ("1795910400", 1_795_910_400.0),
    ],
)
def test_a_day_a_time_and_seconds_are_moments(text: str, seconds: float) -> None:
    assert parse_moment(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "nan", "inf", "1e5", "٣", "9" * 400, "2101-01-01", "0001-01-01T00:00+23:59"]
)
def test_what_is_none_or_beyond_all_reason_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text)
