"""What a list of traces is asked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import parse_qs

from baton_common.errors import RequestFailed
from baton_common.moments import MOMENT_FORMS, parse_moment

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
_MAX_PAGE_CHARACTERS = 18

Failed = Literal["error", "cancelled"]


@dataclass(frozen=True)
class ListAsked:
    limit: int = DEFAULT_LIMIT
    status: Failed | None = None
    since: float = 0.0
    """Unix seconds; of the last that was reported."""
    until: float | None = None
    before: int | None = None
    """The page: only what was reported before this message of the stream."""


def parse_list(query: str) -> ListAsked:
    """Of a parameter that comes twice the last one counts. Raises RequestFailed."""
    given = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    return ListAsked(
        limit=_number(given, "limit", MAX_LIMIT) or DEFAULT_LIMIT,
        status=_status(given),
        since=_moment(given, "since") or 0.0,
        until=_moment(given, "until"),
        before=_number(given, "page", 10**_MAX_PAGE_CHARACTERS),
    )


def _number(given: Mapping[str, str], name: str, most: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most:
        return int(text)
    told = (
        "must be the next_page of an answer" if name == "page" else f"must be a whole number from 1 to {most}"
    )
    raise RequestFailed.because("invalid_value", f"{name} {told}.", param=name)


def _status(given: Mapping[str, str]) -> Failed | None:
    text = given.get("status")
    if text is not None and text not in get_args(Failed):
        known = " or ".join(get_args(Failed))
        raise RequestFailed.because("invalid_value", f"status must be {known}.", param="status")
    return cast("Failed | None", text)


def _moment(given: Mapping[str, str], name: str) -> float | None:
    if name not in given:
        return None
    try:
        return parse_moment(given[name])
    except ValueError:
        raise RequestFailed.because("invalid_value", f"{name} must be {MOMENT_FORMS}.", param=name) from None
