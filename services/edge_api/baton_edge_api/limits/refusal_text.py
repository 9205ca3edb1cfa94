"""A refusal in words and as an HTTP error. Pure."""

from __future__ import annotations

from baton_common.errors import RequestFailed
from baton_common.money import dollars
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_edge_api.limits.figures import kind_of
from baton_edge_api.limits.standing import Refusal

_WHO = {"key": "This API key", "team": "This team", "model": "This model"}


def refusal_error(party: str, refusal: Refusal) -> RequestFailed:
    who = _WHO[kind_of(party)]
    code: ErrorCode = "insufficient_quota" if refusal.kind == "budget" else "rate_limit_exceeded"
    text = f"{who} {_what(refusal)}"
    seconds = refusal.retry_after_seconds if code == "rate_limit_exceeded" else None
    return RequestFailed(ErrorBody(code=code, message=text, stop="edge_api", retry_after_seconds=seconds))


def _what(refusal: Refusal) -> str:
    limit, used, wanted = refusal.limit, refusal.used, refusal.wanted
    again = f"Try again in {refusal.retry_after_seconds:.1f} s."
    if refusal.kind == "tokens" and refusal.can_never_fit:
        return f"may use {limit} tokens a minute; this request alone may take {wanted}. Ask for fewer tokens."
    if refusal.kind == "tokens":
        taken = f"{used} are used or reserved, and this request may take {wanted}"
        return f"may use {limit} tokens a minute: {taken}. {again}"
    if refusal.kind == "concurrent":
        return f"may have {limit} requests under way at once, and has {used}. {again}"
    if refusal.kind == "requests":
        return f"may have {limit} requests a minute, and has had {used}. {again}"
    return _about_money(refusal, again)


def _about_money(refusal: Refusal, again: str) -> str:
    limit, used, wanted = refusal.limit, refusal.used, refusal.wanted
    budget = f"has a budget of ${dollars(limit)}"
    if refusal.kind == "budget_held":
        return f"{budget}, and requests under way may spend what is left of it. {again}"
    if used >= limit:
        return f"{budget}, and it is spent. Waiting does not help: ask for a higher one."
    return f"{budget}, of which ${dollars(used)} is spent; this request may cost ${dollars(wanted)}."
