"""GET /v1/usage: the ledger's rows of one request, or its sums by key, team, model and day. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast, get_args

from baton_common.money import dollars
from baton_contracts.queries import BooksQuery, BooksReply, UsageBy, UsageSum
from baton_edge_api.refusals import bad_value, missing

_LATEST = 4_102_444_800.0
"""2100: a database can't be asked for what is beyond all reason."""

_MAX_PAGE_CHARACTERS = 64


def sums_query(tenant_id: str, params: Mapping[str, str]) -> BooksQuery:
    """`by=key,model&since=2026-11-01&until=2026-12-01`; both ends may be left out. `page`: the
    `next_page` of the answer before. Raises RequestFailed."""
    known = get_args(UsageBy)
    names = [name for name in params.get("by", "").split(",") if name]
    for name in names:
        if name not in known:
            raise bad_value("by", f"{name[:32]!r} is none of {', '.join(known)}.")
    if not names:
        raise missing("by", f"name what is told apart: {', '.join(known)}, joined by commas.")
    return BooksQuery(
        kind="usage_sums",
        tenant_id=tenant_id,
        by=tuple(cast("list[UsageBy]", list(dict.fromkeys(names)))),
        since=_moment(params, "since") or 0.0,
        until=_moment(params, "until"),
        page=_page(params),
    )


def sums_object(reply: BooksReply) -> dict[str, Any]:
    data = [_sum(each) for each in reply.sums]
    return {"object": "list", "data": data, "has_more": bool(reply.next_page), "next_page": reply.next_page}


def _sum(each: UsageSum) -> dict[str, Any]:
    counts = each.model_dump(mode="json", exclude_none=True, exclude={"cost_picos"})
    return counts | {"cost_usd": dollars(each.cost_picos)}


def _page(params: Mapping[str, str]) -> str | None:
    page = params.get("page")
    if page and len(page) > _MAX_PAGE_CHARACTERS:
        raise bad_value("page", "must be the next_page of an answer.")
    return page or None


def _moment(params: Mapping[str, str], name: str) -> float | None:
    """A day by UTC, a time in ISO 8601, or Unix seconds."""
    text = params.get(name, "")
    if not text:
        return None
    try:
        seconds = float(text) if text.isascii() and text.isdigit() else _iso(text)
    except ValueError:
        raise bad_value(name, "must be a day (2026-11-29), a time in ISO 8601, or Unix seconds.") from None
    if not 0 <= seconds <= _LATEST:
        raise bad_value(name, "must be from 1970 to 2100.")
    return seconds


def _iso(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
