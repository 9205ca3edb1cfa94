"""Responses in the background against a scripted relay and the real books: made, asked for, cancelled, and
what becomes of one whose edge goes away."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import httpx
import pytest

from baton_contracts.errors import ErrorBody
from baton_edge_api.background import runner
from tests.support.background_responses import (
    ASKED,
    asked_until,
    books,
    client_of,
    edge,
    ended,
    http,
    left_behind,
    own_nats,
    told_in_two,
)
from tests.support.edge_process import RunningEdge, Turn, hello, running_edge
from tests.support.openai_responses import judged, text_of, whole
from tests.support.relay import eventually

__all__ = ["books", "edge", "http", "own_nats"]


async def refused(http: httpx.AsyncClient, status: int, **fields: Any) -> dict[str, Any]:
    answer = await http.post("/v1/responses", json=ASKED | fields)
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


async def endless(turn: Turn) -> None:
    await turn.prologue()
    await turn.data("Once upon")
    await turn.cancelled.wait()
    await turn.end("cancelled", completion_tokens=2)


async def test_it_is_made_while_its_client_does_something_else(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    may_go_on = asyncio.Event()
    edge.relay.script = told_in_two(may_go_on)
    answer = await http.post("/v1/responses", json=ASKED | {"metadata": {"a": "b"}, "priority": 7})
    queued = judged(answer.json())
    assert (queued["status"], queued["background"], queued["output"]) == ("queued", True, [])
    assert queued["metadata"] == {"a": "b"}
    assert queued["id"].startswith(f"resp_{answer.headers['x-request-id']}")
    going = await asked_until(http, queued["id"], lambda found: found["status"] == "in_progress")
    assert going == queued | {"status": "in_progress"}
    listed = (await http.get(f"/v1/responses/{queued['id']}/input_items")).json()
    assert [item["id"] for item in listed["data"]] == [f"msg_{queued['id'][5:]}i0"]
    deleted = await http.delete(f"/v1/responses/{queued['id']}")
    assert (deleted.status_code, deleted.json()["error"]["code"]) == (409, "conflict")
    error = await refused(http, 400, background=False, previous_response_id=queued["id"])
    assert "still being made" in error["message"]
    may_go_on.set()
    done = await ended(http, queued["id"])
    assert (done["status"], text_of(done), done["background"]) == ("completed", "Hello you!", True)
    assert done["created_at"] == queued["created_at"]
    assert (await http.get(f"/v1/responses/{queued['id']}/input_items")).json() == listed
    [turn] = edge.relay.turns
    assert (turn.request_id, turn.handoff.chat.priority) == (answer.headers["x-request-id"], 7)
    assert turn.handoff.envelope.deadline > done["created_at"] + 3000, "as long as the setting says"
    edge.relay.script = hello
    await whole(http, model="m", input="Go on.", previous_response_id=queued["id"])
    assert (await http.delete(f"/v1/responses/{queued['id']}")).json()["deleted"] is True


async def test_one_that_waits_for_room_is_asked_again(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    async def full_at_first(turn: Turn) -> None:
        if len(edge.relay.turns) == 1:
            full = ErrorBody(
                code="queue_full", message="No seat.", stop="inference_router", retry_after_seconds=0.1
            )
            await turn.error(full)
        else:
            await hello(turn)

    edge.relay.script = full_at_first
    queued = (await http.post("/v1/responses", json=ASKED)).json()
    assert text_of(await ended(http, queued["id"])) == "Hello ☃!"
    runs = [turn.handoff.envelope.run_id for turn in edge.relay.turns]
    assert len(set(runs)) == 2, "each try has ledger rows of its own"


async def test_of_one_trace_several_may_wait_for_room(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    full = ErrorBody(code="queue_full", message="No seat.", stop="inference_router", retry_after_seconds=30)
    edge.relay.script = lambda turn: turn.error(full)
    trace = {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"}
    answers: list[httpx.Response] = []
    for number in (1, 2):
        answers.append(await http.post("/v1/responses", json=ASKED, headers=trace))
        assert answers[-1].status_code == 200, answers[-1].text
        await eventually(lambda number=number: len(edge.relay.turns) == number)
        await edge.node._actors[0].finished()  # it waits without a seat
    first, second = (answer.headers["x-request-id"] for answer in answers)
    assert first == trace["traceparent"][3:35] != second
    for answer in answers:
        cancelled = await http.post(f"/v1/responses/{answer.json()['id']}/cancel")
        assert cancelled.json()["status"] == "cancelled"


async def test_what_can_not_be_answered_has_failed_and_says_why(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    async def too_long(turn: Turn) -> None:
        await turn.error(ErrorBody(code="context_length_exceeded", message="Too long.", param="messages"))

    async def breaks(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Once upon")
        await turn.error(ErrorBody(code="upstream_error", message="It broke.", stop="llm_gateway"))

    edge.relay.script = too_long
    queued = (await http.post("/v1/responses", json=ASKED)).json()
    failed = await ended(http, queued["id"])
    assert failed == queued | {
        "status": "failed",
        "error": {"code": "invalid_prompt", "message": "Too long."},
    }
    edge.relay.script = breaks
    queued = (await http.post("/v1/responses", json=ASKED)).json()
    failed = await ended(http, queued["id"])
    assert (failed["status"], failed["error"]["message"]) == ("failed", "It broke.")
    assert text_of(failed) == "Once upon"
    assert len(edge.relay.turns) == 2


async def test_cancelled_under_way_it_stops_and_keeps_what_had_come(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    edge.relay.script = endless
    queued = (await http.post("/v1/responses", json=ASKED)).json()
    await asked_until(http, queued["id"], lambda found: found["status"] == "in_progress")
    path = f"/v1/responses/{queued['id']}/cancel"
    cancelled = judged((await http.post(path)).json())
    assert (cancelled["status"], cancelled["error"]) == ("cancelled", None)
    assert text_of(cancelled) == "Once upon"
    assert edge.relay.cancels.get_nowait().request_id == edge.relay.turns[0].request_id
    assert (await http.post(path)).json() == cancelled, "again is the same"
    assert (await http.get(path[:-7])).json() == cancelled


async def test_cancelled_before_it_began(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    async def never_begins(turn: Turn) -> None:
        await turn.cancelled.wait()

    edge.relay.script = never_begins
    queued = (await http.post("/v1/responses", json=ASKED)).json()
    await edge.relay.took()
    cancelled = judged((await http.post(f"/v1/responses/{queued['id']}/cancel")).json())
    assert cancelled == queued | {"status": "cancelled"}


async def test_only_what_is_made_in_the_background_is_cancelled_so(http: httpx.AsyncClient) -> None:
    done = await whole(http, model="m", input="Hello?")
    answer = await http.post(f"/v1/responses/{done['id']}/cancel")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_id")
    for unknown in ("resp_x", f"resp_{'0' * 40}"):
        assert (await http.post(f"/v1/responses/{unknown}/cancel")).status_code == 404
    queued = (await http.post("/v1/responses", json=ASKED)).json()
    done = await ended(http, queued["id"])
    assert (await http.post(f"/v1/responses/{queued['id']}/cancel")).json() == done


async def test_what_is_refused_at_once(own_nats: str, books: None) -> None:
    async with (
        running_edge(own_nats, endless, max_background=2, max_tenant_background=1) as edge,
        client_of(edge) as http,
    ):
        assert (await refused(http, 400, store=False))["param"] == "background"
        assert (await refused(http, 404, previous_response_id=f"resp_{'0' * 40}"))["code"] == "not_found"
        queued = (await http.post("/v1/responses", json=ASKED)).json()
        for fields in ({}, {"stream": True}):
            assert "1 of them yours" in (await refused(http, 503, **fields))["message"]
        again = await http.post("/v1/responses", json=ASKED, headers={"x-request-id": queued["id"][5:37]})
        assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")
        await http.post(f"/v1/responses/{queued['id']}/cancel")
        again = await http.post("/v1/responses", json=ASKED)
        assert again.status_code == 200, "room again"
        await http.post(f"/v1/responses/{again.json()['id']}/cancel")


async def test_one_that_waits_too_long_has_failed(own_nats: str, books: None) -> None:
    async with running_edge(own_nats, background_seconds=0.2) as edge, client_of(edge) as http:

        async def no_seat(turn: Turn) -> None:
            await turn.error(ErrorBody(code="queue_full", message="No seat.", retry_after_seconds=0.1))

        edge.relay.script = no_seat
        queued = (await http.post("/v1/responses", json=ASKED)).json()
        failed = await ended(http, queued["id"])
        assert failed["error"] == {"code": "server_error", "message": "It was not made within 0.2 s."}


# An edge that goes away


async def test_another_edge_makes_anew_what_a_leaving_one_could_not_finish(
    own_nats: str, books: None
) -> None:
    async with running_edge(own_nats, endless) as other, client_of(other) as elsewhere:
        async with running_edge(own_nats, endless, drain_for=0.1) as leaving, client_of(leaving) as http:
            leaving.relay.hold_scripts = True
            queued = (await http.post("/v1/responses", json=ASKED)).json()
            await asked_until(elsewhere, queued["id"], lambda found: found["status"] == "in_progress")
            other.relay.script = leaving.relay.script = hello
        done = await ended(elsewhere, queued["id"])
    assert (done["status"], text_of(done)) == ("completed", "Hello ☃!")
    assert done["created_at"] == queued["created_at"]


async def test_another_edge_takes_what_a_dead_one_was_making(
    own_nats: str, books: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_UNHEARD_SECONDS", 0.2)
    async with running_edge(own_nats) as edge, client_of(edge) as http:
        done = await whole(http, model="m", input="Hello?")
        lost = await left_behind(edge, done, starts=1)
        answered = await ended(http, lost.response_id)
        assert (answered["status"], text_of(answered)) == ("completed", "Hello ☃!")
        tried_often = await left_behind(edge, done, starts=4)
        failed = await ended(http, tried_often.response_id)
        assert failed["status"] == "failed"
        assert "4 instances were lost" in failed["error"]["message"]
        cancelled = await left_behind(edge, done, starts=1, is_cancelled=True)
        assert (await ended(http, cancelled.response_id))["status"] == "cancelled"
        num_turns = len(edge.relay.turns)
        kept = await left_behind(edge, done, key=done["id"][5:])
        assert (await ended(http, kept.response_id))["output"] == done["output"], "its end was kept already"
        assert len(edge.relay.turns) == num_turns == 2


async def test_what_is_stored_and_can_not_be_read_ends_as_failed(
    edge: RunningEdge, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = await edge.bus.jetstream.key_value("baton_background")
    key = secrets.token_hex(20)
    await bucket.put(f"default.{key}", b'{"of": "another version"}')
    failed = await ended(http, f"resp_{key}")
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert "could not be read" in failed["error"]["message"]
    assert not edge.relay.turns, "nothing was asked"
    await bucket.put("no-name-of-a-response", b"{}")
    await eventually(lambda: "no-name-of-a-response can't be read" in caplog.text)
    assert (await http.get(f"/v1/responses/resp_{key}")).json() == failed


async def test_it_waits_for_a_live_request_of_the_same_id(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    may_end = asyncio.Event()

    async def no_seat_then_live(turn: Turn) -> None:
        if len(edge.relay.turns) == 1:
            full = ErrorBody(code="queue_full", message="No seat.", retry_after_seconds=1)
            await turn.error(full)
        elif len(edge.relay.turns) == 2:
            await may_end.wait()
            await hello(turn)
        else:
            await hello(turn)

    edge.relay.script = no_seat_then_live
    queued = (await http.post("/v1/responses", json=ASKED)).json()
    await edge.relay.took()
    await edge.node._actors[0].finished()  # it waits without a seat
    same_id = {"x-request-id": queued["id"][5:37]}
    body = {"model": "m", "input": "Hello?"}
    live = asyncio.create_task(http.post("/v1/responses", json=body, headers=same_id))
    await edge.relay.took(2)
    async with asyncio.timeout(10):
        while 'code="conflict"' not in (await http.get("/metrics")).text:
            await asyncio.sleep(0)
    may_end.set()
    assert text_of((await live).json()) == "Hello ☃!"
    assert text_of(await ended(http, queued["id"])) == "Hello ☃!"
