"""How far back, as people type it: a length (30m, 24h, 7d), `today`, `yesterday`, `month`, or a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from baton_cli.errors import CliError
from baton_common.moments import MOMENT_FORMS, parse_moment

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SINCE_HELP = "From when on: 30m, 24h, 7d, today, yesterday, month (this one), or a day."
UNTIL_HELP = "And before this moment; the same forms."


def moment_of(option: str, text: str, now: float) -> float:
    """Unix seconds; days and months are UTC's. Raises CliError."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"today": today, "yesterday": today - timedelta(days=1), "month": today.replace(day=1)}
    if text in named:
        return named[text].timestamp()
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and int(number):
        return max(0.0, now - int(number) * _UNITS[unit])
    try:
        return parse_moment(text)
    except ValueError:
        known = f"90s, 30m, 24h, 7d, today, yesterday, month, or {MOMENT_FORMS}"
        raise CliError(f"{option} {text!r} is no time. Write {known}.") from None
