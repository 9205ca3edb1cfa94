"""`baton trace` right after an answer: the last stops have not reported yet."""

from __future__ import annotations

from itertools import count

import httpx
import pytest

from baton_cli.commands.trace import settled_trace
from baton_cli.edge_client import EdgeAddress, EdgeClient
from baton_cli.errors import EdgeRefused

RID = "0123456789abcdef0123456789abcdef"
MISSING = httpx.Response(404, json={"error": {"message": "no such trace", "code": "not_found"}})


def trace(status: str) -> httpx.Response:
    return httpx.Response(200, json={"request_id": RID, "summary": {"status": status}, "spans": []})


def settled(*answers: httpx.Response) -> tuple[str, list[float]]:
    """The status of the trace that is shown, and the pauses before it; a clock of one second a look."""
    waiting = list(answers)
    client = EdgeClient(
        EdgeAddress("http://edge", "k"),
        httpx.MockTransport(lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]),
    )
    pauses: list[float] = []
    ticks = count()
    body = settled_trace(client, RID, clock=lambda: float(next(ticks)), sleep=pauses.append)
    return body["summary"]["status"], pauses


def test_a_whole_trace_is_shown_at_once() -> None:
    assert settled(trace("ok")) == ("ok", [])


def test_one_that_is_not_there_yet_or_not_whole_is_waited_for() -> None:
    assert settled(MISSING, trace("running"), trace("error")) == ("error", [0.2, 0.2])


def test_patience_ends() -> None:
    assert settled(trace("running")) == ("running", [0.2, 0.2])
    with pytest.raises(EdgeRefused, match="no such trace"):
        settled(MISSING)


def test_another_refusal_is_not_waited_out() -> None:
    denied = httpx.Response(401, json={"error": {"message": "bad key", "code": "invalid_api_key"}})
    with pytest.raises(EdgeRefused, match="bad key"):
        settled(denied, trace("ok"))
