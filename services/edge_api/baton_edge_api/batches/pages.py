"""One page of a list, as OpenAI's lists are cut: `limit`, `after`, `order`.

Knows nothing of what is listed but its id and its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from baton_edge_api.refusals import bad_value


class Listed(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> int: ...

    def object(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Listed)


def page(
    items: Sequence[T], query: Mapping[str, str], *, most: int, default: int, orders: bool = True
) -> dict[str, Any]:
    """The newest first, unless `order=asc`. Raises RequestFailed, naming the parameter."""
    limit, order = _limit(query.get("limit"), most, default), query.get("order", "desc")
    if orders and order not in ("asc", "desc"):
        raise bad_value("order", "must be asc or desc.")
    newest_first = not orders or order == "desc"
    ordered = sorted(items, key=lambda item: (item.created_at, item.id), reverse=newest_first)
    if after := query.get("after"):
        places = [place for place, item in enumerate(ordered) if item.id == after]
        if not places:
            raise bad_value("after", "nothing in this list has this id.")
        ordered = ordered[places[0] + 1 :]
    shown = ordered[:limit]
    return {
        "object": "list",
        "data": [item.object() for item in shown],
        "first_id": shown[0].id if shown else None,
        "last_id": shown[-1].id if shown else None,
        "has_more": len(ordered) > limit,
    }


def _limit(raw: str | None, most: int, default: int) -> int:
    if raw is None:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > 6 or not 1 <= int(raw) <= most:
        raise bad_value("limit", f"must be a whole number from 1 to {most}.")
    return int(raw)
