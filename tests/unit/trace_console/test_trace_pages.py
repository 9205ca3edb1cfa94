"""What a browser may have, and who may see which trace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.resources import files

import pytest

from baton_common.clock import Clock
from baton_common.errors import BusUnavailable, RequestFailed
from baton_contracts.envelope import Tenant
from baton_contracts.queries import ConsoleQuery, ConsoleReply
from baton_contracts.spans import SpanBatch
from baton_trace_console.actor import Console
from baton_trace_console.archive import Newest
from baton_trace_console.list_question import ListAsked, parse_list
from baton_trace_console.pages import Pages
from tests.support.traces import make_batch, make_span, whole_relay

ACME = Tenant(tenant_id="acme", key_id="k")
RIVAL = Tenant(tenant_id="rival", key_id="k")
RID = "ab" * 16
T0 = 1_800_000_000.0


class FakeArchive:
    def __init__(self, *batches: SpanBatch, away: bool = False) -> None:
        self._batches = batches
        self._away = away

    async def batches_of(self, request_id: str) -> list[SpanBatch]:
        if self._away:
            raise BusUnavailable("TRACE")
        return [batch for batch in self._batches if batch.request_id == request_id]

    async def batches_of_all(self, request_ids: Iterable[str]) -> list[tuple[str, list[SpanBatch]]]:
        return [(request_id, await self.batches_of(request_id)) for request_id in request_ids]

    async def newest_of(self, tenant_id: str, asked: ListAsked) -> Newest:
        theirs = [batch.request_id for batch in self._batches if batch.tenant_id == tenant_id]
        return Newest(tuple(dict.fromkeys(reversed(theirs)))[: asked.limit], asked.before)


def console(*batches: SpanBatch, away: bool = False) -> Console:
    archive = FakeArchive(*batches, away=away)
    return Console(archive, Pages(), Clock(wall=lambda: T0 + 60))  # type: ignore[arg-type]


async def ask(asked: Console, path: str, tenant: Tenant | None = None) -> ConsoleReply:
    return await asked.answer("0" * 32, ConsoleQuery(path=path, tenant=tenant))


async def error_of(asked: Console, path: str, tenant: Tenant | None = None) -> tuple[str, int]:
    with pytest.raises(RequestFailed) as caught:
        await ask(asked, path, tenant)
    return caught.value.error.code, caught.value.error.status


@pytest.mark.parametrize(
    ("path", "media_type", "begins"),
    [
        ("/", "text/html; charset=utf-8", "<!doctype html>"),
        ("/ui/trace", "text/html; charset=utf-8", "<!doctype html>"),
        ("/ui/trace?id=abc", "text/html; charset=utf-8", "<!doctype html>"),
        ("/ui/chat.js", "text/javascript; charset=utf-8", "//"),
        ("/ui/baton.css", "text/css; charset=utf-8", "/*"),
        ("/ui/icon.svg", "image/svg+xml", "<svg"),
    ],
)
async def test_pages_need_no_key(path: str, media_type: str, begins: str) -> None:
    reply = await ask(console(), path)
    assert (reply.status, reply.media_type) == (200, media_type)
    assert reply.body.startswith(begins)


@pytest.mark.parametrize(
    "path",
    [
        "/ui/",
        "/ui/../actor.py",
        "/ui/..%2factor.py",
        "/ui//etc/passwd",
        "//etc/passwd",
        "/ui/chat.html",
        "/ui/chat.js/",
        "/ui/chat.js\0",
        "/UI/chat.js",
        "/etc/passwd",
        "",
    ],
)
async def test_only_what_is_on_the_list_is_there(path: str) -> None:
    assert await error_of(console(), path) == ("not_found", 404)


def test_pages_load_nothing_from_elsewhere_and_run_nothing_inline() -> None:
    for file in (files("baton_trace_console") / "pages").iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text), file.name
        assert "innerHTML" not in text, file.name
        assert "insertAdjacentHTML" not in text, file.name
        if file.name.endswith(".html"):
            assert "default-src 'none'" in text
            assert not re.search(r"<script(?![^>]*\ssrc=)|\son[a-z]+=|<style|\sstyle=", text), file.name
            for path in re.findall(r'(?:src|href)="([^"#]+)"', text):
                assert Pages().find(path), path


async def test_a_trace_is_told_to_its_tenant() -> None:
    reply = await ask(console(make_batch(RID, *whole_relay(T0))), f"/v1/traces/{RID}", ACME)
    assert reply.media_type == "application/json"
    trace = json.loads(reply.body)
    assert trace["summary"]["stops"] == list(range(1, 11))
    assert len(trace["spans"]) == 10


async def test_a_uuid_names_the_same_trace() -> None:
    dashed = f"{RID[:8]}-{RID[8:12]}-{RID[12:16]}-{RID[16:20]}-{RID[20:]}".upper()
    reply = await ask(console(make_batch(RID, *whole_relay(T0))), f"/v1/traces/{dashed}", ACME)
    assert json.loads(reply.body)["request_id"] == RID


async def test_another_tenants_trace_an_unknown_one_and_a_bad_id_look_the_same() -> None:
    asked = console(make_batch(RID, *whole_relay(T0)))
    answers = set[tuple[str, str]]()
    for path, tenant in ((RID, RIVAL), ("cd" * 16, ACME), ("a.b.>", ACME), ("", ACME), ("x" * 400, ACME)):
        with pytest.raises(RequestFailed) as caught:
            await ask(asked, f"/v1/traces/{path}", tenant)
        answers.add((caught.value.error.code, caught.value.error.message))
    assert len(answers) == 1
    assert next(iter(answers))[0] == "not_found"


async def test_traces_need_a_key() -> None:
    assert await error_of(console(), f"/v1/traces/{RID}") == ("invalid_api_key", 401)
    assert await error_of(console(), "/v1/traces") == ("invalid_api_key", 401)


async def test_the_newest_traces_come_first_and_only_those_of_the_tenant() -> None:
    asked = console(
        *(
            make_batch(f"{number:032x}", make_span(2, T0 + number, T0 + number + 1))
            for number in range(1, 31)
        ),
        make_batch("f" * 32, make_span(2, T0 + 99, T0 + 100), tenant_id="rival"),
    )
    answer = json.loads((await ask(asked, "/v1/traces?limit=2", ACME)).body)
    assert [trace["request_id"] for trace in answer["data"]] == [f"{number:032x}" for number in (30, 29)]
    assert answer["data"][0]["summary"]["started_at"] == T0 + 30
    assert len(json.loads((await ask(asked, "/v1/traces", ACME)).body)["data"]) == 20


async def test_a_list_of_failures_says_where_they_failed() -> None:
    """The second was tried again and went well; it is not one of them."""
    refused = {"error": "queue_full", "error_stop": "inference_router"}
    blocked = [make_span(stop, T0, T0 + 1, status="error") for stop in (4, 9)]
    asked = console(
        make_batch("1" * 32, make_span(9, T0, T0 + 1, status="error", attributes=refused)),
        make_batch("2" * 32, make_span(7, T0, T0 + 1, status="error"), make_span(9, T0 + 1, T0 + 2)),
        make_batch("3" * 32, *blocked),
    )
    answer = json.loads((await ask(asked, "/v1/traces?status=error&page=77", ACME)).body)
    told = [(trace["request_id"][0], trace["summary"]) for trace in answer["data"]]
    assert [(number, one["error"], one["error_stop"]) for number, one in told] == [
        ("3", None, "input_guardrails"),
        ("1", "queue_full", "inference_router"),
    ]
    assert (answer["has_more"], answer["next_page"]) == (True, "77")
    everything = json.loads((await ask(asked, "/v1/traces", ACME)).body)
    assert len(everything["data"]) == 3
    assert (everything["has_more"], everything["next_page"]) == (False, None)


def test_a_list_is_asked_for_by_ending_and_time() -> None:
    assert parse_list("") == ListAsked()
    assert parse_list("limit=5&status=error&since=2026-11-01&until=1796000000&page=12") == ListAsked(
        5, "error", 1_793_491_200.0, 1_796_000_000.0, 12
    )


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("status=ok", "status"),
        ("status=", "status"),
        ("since=yesterday", "since"),
        ("until=-1", "until"),
        ("page=0", "page"),
        ("page=1e3", "page"),
        ("page=" + "9" * 40, "page"),
    ],
)
async def test_what_can_not_be_asked_of_a_list_names_its_parameter(query: str, param: str) -> None:
    with pytest.raises(RequestFailed) as caught:
        await ask(console(), f"/v1/traces?{query}", ACME)
    assert (caught.value.error.status, caught.value.error.param) == (400, param)


@pytest.mark.parametrize("limit", ["0", "-1", "101", "ten", "1e3", "", "%20", "٣", "99999999999999999999"])
async def test_a_limit_out_of_bounds_is_told_apart(limit: str) -> None:
    query = f"/v1/traces?limit={limit}&limit={limit}"
    assert await error_of(console(), query, ACME) == ("invalid_value", 400)


async def test_a_bus_that_is_away_is_a_503() -> None:
    assert await error_of(console(away=True), f"/v1/traces/{RID}", ACME) == ("bus_unavailable", 503)
