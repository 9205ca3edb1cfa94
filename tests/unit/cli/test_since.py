"""How far back, as typed."""

from __future__ import annotations

import pytest

from baton_cli.errors import CliError
from baton_cli.since import moment_of

NOW = 1_796_000_000.0  # 2026-11-30 01:33:20 UTC
TODAY = 1_795_996_800.0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - 90),
        ("30m", NOW - 1800),
        ("24h", NOW - 86_400),
        ("7d", NOW - 604_800),
        ("99999d", 0.0),
        ("today", TODAY),
        ("yesterday", TODAY - 86_400),
        ("month", TODAY - 29 * 86_400),
        ("2026-11-29", TODAY - 86_400),
        ("2026-11-30T02:00:00+02:00", TODAY),
        ("1796000000", NOW),
    ],
)
def test_how_far_back(text: str, moment: float) -> None:
    assert moment_of("--since", text, NOW) == moment


@pytest.mark.parametrize("text", ["", "h", "0h", "-1h", "1w", "1.5h", "tomorrow", "²h", "1850-01-01"])
def test_no_time(text: str) -> None:
    with pytest.raises(CliError, match=r"^--until .* is no time"):
        moment_of("--until", text, NOW)
