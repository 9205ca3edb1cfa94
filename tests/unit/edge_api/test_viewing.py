"""What a client is told that follows the events of a response, where these can't be read."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from baton_common.errors import BusError, RequestFailed
from baton_edge_api.background.store import away
from baton_edge_api.background.viewing import View, Viewed, ViewingParts
from baton_edge_api.responses.events import error_event

VIEWED = Viewed("acme", "resp_" + "0" * 40, "f" * 32)
AWAY = away(BusError("acme.0", "away"))


class _Away:
    """Store, mirror, events and books of a bus that is away."""

    async def find(self, tenant_id: str, response_id: str) -> None:
        raise AWAY


def a_view(after: int, num_events: int) -> View:
    parts = ViewingParts(*[cast(Any, _Away())] * 4, keep_alive_seconds=15, write_seconds=10)
    return View(parts, VIEWED, after, asyncio.Event(), num_events=num_events)


async def test_who_has_got_events_already_is_told_in_the_stream() -> None:
    pieces = [piece async for piece in a_view(after=1, num_events=2).pieces()]
    assert pieces == [error_event(AWAY.error, 1)]


async def test_who_has_got_none_gets_a_status() -> None:
    with pytest.raises(RequestFailed, match="can't be reached now"):
        await anext(a_view(after=-1, num_events=0).pieces())
