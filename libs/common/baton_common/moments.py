"""A moment as people write it: a day (UTC), a time in ISO 8601, or Unix seconds, which it becomes."""

from __future__ import annotations

from datetime import UTC, datetime

_LATEST = 4_102_444_800.0
"""2100: a database can't be asked for what is beyond all reason."""
MOMENT_FORMS = "a day (2026-11-29), a time in ISO 8601, or Unix seconds, from 1970 to 2100"


def parse_moment(text: str) -> float:
    """Raises ValueError."""
    seconds = float(text) if text.isascii() and text.isdigit() else _iso(text)
    if not 0 <= seconds <= _LATEST:
        raise ValueError(text)
    return seconds


def _iso(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
