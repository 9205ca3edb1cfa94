"""How the limits stand, as headers: of several accounts the one with the least left speaks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from baton_edge_api.answers import HeaderList
from baton_edge_api.limits.figures import kind_of
from baton_edge_api.limits.standing import View

BUDGET_ALERT = b"x-baton-budget-alert"


def rate_headers(views: Sequence[tuple[str, View]]) -> HeaderList:
    """`views` are parties and how their accounts stand."""
    headers: HeaderList = []
    requests = [view for _, view in views if view.limit_requests is not None]
    if requests:
        least = min(requests, key=lambda view: view.remaining_requests)
        headers += _three(
            b"requests", least.limit_requests or 0, least.remaining_requests, least.reset_seconds
        )
    tokens = [view for _, view in views if view.limit_tokens is not None]
    if tokens:
        least = min(tokens, key=lambda view: view.remaining_tokens)
        headers += _three(b"tokens", least.limit_tokens or 0, least.remaining_tokens, least.reset_seconds)
    alerts = [
        f"{kind_of(party)} {view.spent_percent}%" for party, view in views if view.spent_percent is not None
    ]
    if alerts:
        headers.append((BUDGET_ALERT, ", ".join(alerts).encode()))
    return headers


def _three(what: bytes, limit: int, remaining: int, reset_seconds: float) -> HeaderList:
    return [
        (b"x-ratelimit-limit-" + what, str(limit).encode()),
        (b"x-ratelimit-remaining-" + what, str(remaining).encode()),
        (b"x-ratelimit-reset-" + what, duration(reset_seconds).encode()),
    ]


def duration(seconds: float) -> str:
    """As OpenAI writes it: `59.82s`, `250ms`, `0s`."""
    millis = max(0, round(seconds * 1000))
    if 0 < millis < 1000:
        return f"{millis}ms"
    return f"{millis / 1000:.3f}".rstrip("0").rstrip(".") + "s"
