"""The trace console on a real NATS server, as a real process with its own user's permissions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from baton_common.jetstream import call, stream_state
from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.envelope import Tenant
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import ConsoleQuery, ConsoleReply
from baton_contracts.spans import SpanBatch
from tests.support.conformance_run import run_conformance
from tests.support.restricted_nats import RestrictedNats, restricted_nats
from tests.support.service_process import ServiceProcess, running_service
from tests.support.traces import make_batch, make_span, whole_relay

ACME = Tenant(tenant_id="acme", key_id="k")
RIVAL = Tenant(tenant_id="rival", key_id="k")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[RestrictedNats]:
    with restricted_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def console(nats: RestrictedNats) -> AsyncIterator[ServiceProcess]:
    async with running_service("trace_console", nats.environment("trace_console")) as service:
        yield service


@pytest.fixture
async def edge(nats: RestrictedNats, console: ServiceProcess) -> AsyncIterator[NatsBus]:
    """The edge's own user: it may ask the console and send spans."""
    bus = await nats.connect("edge_api")
    yield bus
    await bus.close()


async def ask(bus: NatsBus, path: str, tenant: Tenant | None = ACME) -> ConsoleReply:
    question = ConsoleQuery(path=path, tenant=tenant)
    payload = await bus.request(subjects.console(new_request_id()), question.encode(), timeout=5)
    return ConsoleReply.decode(payload)


async def trace_of(bus: NatsBus, request_id: str) -> dict[str, Any]:
    reply = await ask(bus, f"/v1/traces/{request_id}")
    assert reply.error is None, reply.error
    return json.loads(reply.body)


async def report(bus: NatsBus, nats: RestrictedNats, *batches: SpanBatch) -> None:
    """As the stops do it, without an answer from the stream; returns when the stream has all."""
    operator = await nats.connect()
    before = (await stream_state(operator, subjects.STREAM_TRACE)).last_seq
    for batch in batches:
        await bus.publish(subjects.trace(batch.request_id), batch.encode())
    async with asyncio.timeout(10):
        while (await stream_state(operator, subjects.STREAM_TRACE)).last_seq < before + len(batches):
            pass
    await operator.close()


async def test_ten_stops_that_report_apart_are_one_trace(edge: NatsBus, nats: RestrictedNats) -> None:
    rid = new_request_id()
    start = time.time()
    await report(edge, nats, *(make_batch(rid, span) for span in reversed(whole_relay(start))))
    trace = await trace_of(edge, rid)
    assert trace["summary"]["stops"] == list(range(1, 11))
    assert trace["summary"]["status"] == "ok"
    assert [span["stop"] for span in trace["spans"]] == list(range(1, 11))
    assert trace["spans"][0]["start_ms"] == 0


async def test_a_trace_under_way_is_shown_as_far_as_it_is(edge: NatsBus, nats: RestrictedNats) -> None:
    rid = new_request_id()
    start = time.time()
    spans = whole_relay(start)
    await report(edge, nats, make_batch(rid, *spans[2:4]))
    trace = await trace_of(edge, rid)
    assert (trace["summary"]["status"], trace["summary"]["stops"]) == ("running", [3, 4])
    await report(edge, nats, make_batch(rid, *spans))  # stops 3 and 4 once more, with the rest
    trace = await trace_of(edge, rid)
    assert (trace["summary"]["status"], len(trace["spans"])) == ("ok", 10)


async def test_the_trace_of_another_tenant_is_a_404(edge: NatsBus, nats: RestrictedNats) -> None:
    rid = new_request_id()
    await report(edge, nats, make_batch(rid, *whole_relay(time.time())))
    theirs = await ask(edge, f"/v1/traces/{rid}", RIVAL)
    unknown = await ask(edge, f"/v1/traces/{new_request_id()}", RIVAL)
    assert theirs.error is not None
    assert theirs.error.status == 404
    assert theirs == unknown
    assert (await ask(edge, f"/v1/traces/{rid}", ACME)).error is None


async def test_a_trace_is_found_at_once_among_many(edge: NatsBus, nats: RestrictedNats) -> None:
    """20,000 reports in the stream; those asked for are at its beginning. Half of the questions take less
    than 25 ms, whatever else this machine does."""
    rid = new_request_id()
    await report(edge, nats, *(make_batch(rid, span) for span in whole_relay(time.time())))
    many = [make_batch(f"{number:032x}", make_span(3, 1.0, 2.0)) for number in range(1, 20_001)]
    await report(edge, nats, *many)
    took: list[float] = []
    for _ in range(21):
        asked_at = time.perf_counter()
        trace = await trace_of(edge, rid)
        took.append(time.perf_counter() - asked_at)
        assert len(trace["spans"]) == 10
    assert sorted(took)[10] < 0.025


async def test_what_is_no_span_batch_spoils_nothing(edge: NatsBus, nats: RestrictedNats) -> None:
    rid = new_request_id()
    await edge.publish(subjects.trace(rid), b"\xff not a batch")
    await report(edge, nats, make_batch(rid, make_span(3, 1.0, 2.0)))
    assert [span["stop"] for span in (await trace_of(edge, rid))["spans"]] == [3]


async def test_the_newest_traces_are_listed_for_their_tenant(edge: NatsBus, nats: RestrictedNats) -> None:
    start = time.time()
    batches = [
        make_batch(f"{number:032x}", make_span(2, start + number, start + number + 1))
        for number in range(1, 6)
    ]
    await report(
        edge, nats, *batches, make_batch("f" * 32, make_span(2, start, start + 1), tenant_id="rival")
    )
    listed = json.loads((await ask(edge, "/v1/traces?limit=3")).body)
    assert [trace["request_id"] for trace in listed["data"]] == [f"{number:032x}" for number in (5, 4, 3)]
    theirs = json.loads((await ask(edge, "/v1/traces", RIVAL)).body)
    assert [trace["request_id"] for trace in theirs["data"]] == ["f" * 32]


async def test_what_failed_is_listed_page_by_page_with_the_stop_that_failed(
    edge: NatsBus, nats: RestrictedNats
) -> None:
    """Of six requests each second one failed; the whole trace is read, whoever reported what of it."""
    start = time.time()
    for number in range(1, 7):
        rid, status = f"{number:032x}", "error" if number % 2 else "ok"
        guard = make_span(4, start + number, start + number + 1, status=status)
        back = make_span(9, start + number, start + number + 1, status=status, attributes={"error": "x"})
        await report(edge, nats, make_batch(rid, guard), make_batch(rid, back))
    found: list[tuple[str, str]] = []
    page = ""
    while True:
        listed = json.loads((await ask(edge, f"/v1/traces?status=error&limit=2{page}")).body)
        found += [(one["request_id"][-1], one["summary"]["error_stop"]) for one in listed["data"]]
        if not listed["has_more"]:
            break
        page = f"&page={listed['next_page']}"
    assert found == [(number, "input_guardrails") for number in "531"]
    recent = json.loads((await ask(edge, f"/v1/traces?since={int(start + 6)}")).body)
    assert [one["request_id"][-1] for one in recent["data"]] == ["6", "5"]


async def test_with_nothing_reported_the_list_is_empty(edge: NatsBus) -> None:
    assert json.loads((await ask(edge, "/v1/traces")).body)["data"] == []


async def test_the_stream_keeps_a_week_and_half_a_gigabyte(
    nats: RestrictedNats, console: ServiceProcess
) -> None:
    operator = await nats.connect()
    config = (await call(operator, "STREAM.INFO.TRACE"))["config"]
    await operator.close()
    assert config["subjects"] == ["baton.v1.trace.*"]
    assert (config["max_age"], config["max_bytes"]) == (7 * 86_400 * 10**9, 512 * 1024 * 1024)
    assert (config["storage"], config["discard"], config["retention"]) == ("file", "old", "limits")


async def test_another_time_to_keep_is_taken_over_and_the_traces_stay(
    nats: RestrictedNats, edge: NatsBus, console: ServiceProcess
) -> None:
    rid = new_request_id()
    await report(edge, nats, make_batch(rid, *whole_relay(time.time())))
    await console.terminate()
    async with running_service(
        "trace_console", nats.environment("trace_console") | {"BATON_TRACE_DAYS": "1"}
    ):
        operator = await nats.connect()
        config = (await call(operator, "STREAM.INFO.TRACE"))["config"]
        await operator.close()
        assert config["max_age"] == 86_400 * 10**9
        assert len((await trace_of(edge, rid))["spans"]) == 10


async def test_traces_outlive_the_console(
    nats: RestrictedNats, edge: NatsBus, console: ServiceProcess
) -> None:
    rid = new_request_id()
    await report(edge, nats, make_batch(rid, *whole_relay(time.time())))
    assert await console.terminate() == 0
    async with running_service("trace_console", nats.environment("trace_console")):
        assert len((await trace_of(edge, rid))["spans"]) == 10


async def test_a_page_comes_over_the_bus(edge: NatsBus) -> None:
    reply = await ask(edge, "/", None)
    assert (reply.status, reply.media_type) == (200, "text/html; charset=utf-8")
    assert "Baton" in reply.body


async def test_it_fits_its_contract(nats: RestrictedNats, console: ServiceProcess) -> None:
    status, printed = await run_conformance("trace_console", nats)
    assert status == 0, printed
    assert "fits    does its work" in printed
