"""GET /v1/usage: the ledger's rows of one request, or its sums by key, team, model and day. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from baton_common.moments import MOMENT_FORMS, parse_moment
from baton_common.money import dollars
from baton_contracts.queries import BooksQuery, BooksReply, UsageBy, UsageSum
from baton_edge_api.refusals import bad_value, missing

_MAX_PAGE_CHARACTERS = 64
_MAX_NAME_CHARACTERS = 128


def sums_query(tenant_id: str, params: Mapping[str, str]) -> BooksQuery:
    """`by=key,model&since=2026-11-01&until=2026-12-01`; both ends may be left out. `key_id`, `team`,
    `model`: only of that one. `page`: the `next_page` of the answer before. Raises RequestFailed."""
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
        key_id=_name(params, "key_id"),
        team=_name(params, "team"),
        model=_name(params, "model"),
        page=_page(params),
    )


def sums_object(reply: BooksReply) -> dict[str, Any]:
    data = [_sum(each) for each in reply.sums]
    return {"object": "list", "data": data, "has_more": bool(reply.next_page), "next_page": reply.next_page}


def _sum(each: UsageSum) -> dict[str, Any]:
    counts = each.model_dump(mode="json", exclude_none=True, exclude={"cost_picos"})
    return counts | {"cost_usd": dollars(each.cost_picos)}


def _name(params: Mapping[str, str], name: str) -> str | None:
    text = params.get(name)
    if text and len(text) > _MAX_NAME_CHARACTERS:
        raise bad_value(name, f"has at most {_MAX_NAME_CHARACTERS} characters.")
    return text or None


def _page(params: Mapping[str, str]) -> str | None:
    page = params.get("page")
    if page and len(page) > _MAX_PAGE_CHARACTERS:
        raise bad_value("page", "must be the next_page of an answer.")
    return page or None


def _moment(params: Mapping[str, str], name: str) -> float | None:
    text = params.get(name, "")
    if not text:
        return None
    try:
        return parse_moment(text)
    except ValueError:
        raise bad_value(name, f"must be {MOMENT_FORMS}.") from None
