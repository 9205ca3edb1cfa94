"""Streams of responses in the background: told while they are made and again afterwards, on any edge, from
any event on; and what a stream says whose edge is lost."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from baton_common.buckets import open_bucket
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data
from baton_contracts.openai_responses import ResponseRequest
from baton_edge_api.background import runner
from baton_edge_api.responses.events import EventWriter, event
from baton_edge_api.responses.telling import Telling
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
from tests.support.edge_process import KEY, RunningEdge, Turn, hello, running_edge
from tests.support.openai_responses import judged_event, text_of, whole

STREAMED = ASKED | {"stream": True}
BEGINNING = ["response.created", "response.queued", "response.in_progress"]

__all__ = ["books", "edge", "http", "own_nats"]


class Events:
    """A stream as it comes, each event judged."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()

    async def next(self) -> dict[str, Any] | None:
        """None: the stream is over."""
        async with asyncio.timeout(10):
            async for line in self._lines:
                if line.startswith("data: "):
                    return judged_event(json.loads(line[6:]))
        return None

    async def until(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while not found or found[-1]["type"] != kind:
            event = await self.next()
            assert event, f"no {kind} after {[one['type'] for one in found]}"
            found.append(event)
        return found

    async def rest(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while event := await self.next():
            found.append(event)
        return found


@asynccontextmanager
async def asking(http: httpx.AsyncClient) -> AsyncGenerator[Events]:
    async with http.stream("POST", "/v1/responses", json=STREAMED) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer)


@asynccontextmanager
async def following(http: httpx.AsyncClient, response_id: str, **query: Any) -> AsyncGenerator[Events]:
    params = {"stream": "true"} | query
    async with http.stream("GET", f"/v1/responses/{response_id}", params=params) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["x-accel-buffering"] == "no"
        yield Events(answer)


def delta_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


async def test_it_goes_on_from_any_event_on_any_edge_while_it_is_made_and_after_its_end(
    own_nats: str, edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    may_go_on = asyncio.Event()
    edge.relay.script = told_in_two(may_go_on)
    async with asking(http) as events:
        first = await events.until("response.output_text.delta")
    assert [event["type"] for event in first[:3]] == BEGINNING
    response_id = first[0]["response"]["id"]
    states = [(event["response"]["id"], event["response"]["status"]) for event in first[:3]]
    assert states == [(response_id, status) for status in ("queued", "queued", "in_progress")]
    last = first[-1]["sequence_number"]
    async with (
        running_edge(own_nats) as other,
        client_of(other) as elsewhere,
        following(elsewhere, response_id, starting_after=last) as events,
    ):
        may_go_on.set()
        rest = await events.rest()
        told = [*first, *rest]
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        assert told[-1]["type"] == "response.completed"
        stored = (await elsewhere.get(f"/v1/responses/{response_id}")).json()
        assert told[-1]["response"] == stored, "who asks for it now gets the same"
        assert (delta_of(told), text_of(stored), stored["status"]) == (
            "Hello you!",
            "Hello you!",
            "completed",
        )
    async with following(http, response_id) as events:
        assert await events.rest() == told, "the same, each with its number"
    async with following(http, response_id, starting_after=len(told) - 2) as events:
        assert await events.rest() == told[-1:]
    async with following(http, response_id, starting_after=len(told) + 5) as events:
        assert await events.rest() == []
    assert (await http.delete(f"/v1/responses/{response_id}")).status_code == 200
    gone = await http.get(f"/v1/responses/{response_id}?stream=true")
    assert gone.status_code == 404
    assert await events_kept(edge, response_id) == []


async def events_kept(edge: RunningEdge, response_id: str) -> list[str]:
    stream = await edge.bus.jetstream.stream_info(
        "KV_baton_background_events", subjects_filter=f"$KV.baton_background_events.*.{response_id[5:]}.>"
    )
    return list(stream.state.subjects or ())


async def test_what_can_not_be_followed_is_refused_by_name(http: httpx.AsyncClient) -> None:
    whole_one = await whole(http, model="m", input="Hello?")
    queued = (await http.post("/v1/responses", json=ASKED)).json()
    done = await ended(http, queued["id"])
    for response_id, query, status, param in (
        (whole_one["id"], "stream=true", 400, "stream"),
        (done["id"], "stream=true", 400, "stream"),
        (done["id"], "stream=maybe", 400, "stream"),
        (done["id"], "starting_after=3", 400, "starting_after"),
        (done["id"], "stream=true&starting_after=-1", 400, "starting_after"),
        (f"resp_{'0' * 40}", "stream=true", 404, "response_id"),
        ("resp_x", "stream=true", 404, "response_id"),
    ):
        answer = await http.get(f"/v1/responses/{response_id}?{query}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), query


async def test_who_asks_for_the_head_of_a_stream_holds_no_place(own_nats: str, books: None) -> None:
    may_go_on = asyncio.Event()
    script = told_in_two(may_go_on)
    async with running_edge(own_nats, script, max_tenant_background=1) as edge, client_of(edge) as http:
        async with asking(http) as events:
            first = await events.until("response.output_text.delta")
        path = f"/v1/responses/{first[0]['response']['id']}?stream=true"
        for _ in range(3):
            head = await http.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-type"].startswith("text/event-stream")
        assert (await http.head(f"/v1/responses/resp_{'0' * 40}?stream=true")).status_code == 404
        async with following(http, first[0]["response"]["id"]) as events:
            may_go_on.set()
            assert (await events.rest())[-1]["type"] == "response.completed"


async def test_a_stream_ends_as_its_response_does(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    async def endless(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Once upon")
        await turn.cancelled.wait()
        await turn.end("cancelled", completion_tokens=2)

    edge.relay.script = endless
    async with asking(http) as events:
        first = await events.until("response.output_text.delta")
        cancelled = await http.post(f"/v1/responses/{first[0]['response']['id']}/cancel")
        rest = await events.rest()
    assert rest[-1]["response"] == cancelled.json()
    assert (rest[-1]["type"], rest[-1]["response"]["status"]) == ("response.incomplete", "cancelled")

    async def too_long(turn: Turn) -> None:
        await turn.error(error("context_length_exceeded", "Too long."))

    edge.relay.script = too_long
    async with asking(http) as events:
        told = await events.rest()
    assert [event["type"] for event in told] == ["response.created", "response.queued", "response.failed"]
    assert told[-1]["response"]["error"]["message"] == "Too long."

    async def breaks(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Once upon")
        await turn.error(error("upstream_error", "It broke."))

    edge.relay.script = breaks
    async with asking(http) as events:
        told = await events.rest()
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert (told[-1]["type"], text_of(told[-1]["response"])) == ("response.failed", "Once upon")


def error(code: Any, message: str) -> ErrorBody:
    return ErrorBody(code=code, message=message)


async def test_openai_python_streams_and_goes_on(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    base_url = f"{edge.url}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0) as client:
        seen: list[Any] = []
        stream = await client.responses.create(model="m", input="Hello?", background=True, stream=True)
        async for told in stream:
            seen.append(told)
            if told.type == "response.in_progress":
                break
        await stream.close()
        response_id, last = seen[0].response.id, seen[-1].sequence_number
        again = await client.responses.retrieve(response_id, stream=True, starting_after=last)
        seen += [told async for told in again]
        assert [told.sequence_number for told in seen] == list(range(len(seen)))
        assert seen[-1].response.output_text == "Hello ☃!"
        async with client.responses.stream(response_id=response_id, starting_after=last) as gathered:
            response = await gathered.get_final_response()
        assert (response.id, response.output_text) == (response_id, "Hello ☃!")


# An edge that goes away


async def test_before_its_answer_began_another_edge_tells_it_in_the_same_stream(
    own_nats: str, books: None
) -> None:
    async def never_begins(turn: Turn) -> None:
        await turn.cancelled.wait()

    async with running_edge(own_nats, never_begins) as other, client_of(other) as elsewhere:
        async with running_edge(own_nats, never_begins, drain_for=0.1) as leaving, client_of(leaving) as http:
            leaving.relay.hold_scripts = True
            async with asking(http) as events:
                first = await events.until("response.queued")
            response_id = first[0]["response"]["id"]
            other.relay.script = leaving.relay.script = hello
        async with following(elsewhere, response_id, starting_after=1) as events:
            told = [*first, *await events.rest()]
    assert [event["type"] for event in told[:3]] == BEGINNING
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert (told[-1]["type"], delta_of(told)) == ("response.completed", "Hello ☃!")


async def test_a_part_that_was_told_is_not_told_anew_in_other_words(
    own_nats: str, books: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_UNHEARD_SECONDS", 0.2)
    async with running_edge(own_nats) as edge, client_of(edge) as http:
        done = await whole(http, model="m", input="Hello?")
        bucket = await open_bucket(edge.bus.jetstream, "baton_background_events")

        async def lost(*pieces: bytes, **fields: Any) -> list[dict[str, Any]]:
            """What a client is told of one whose edge wrote these events and was lost."""
            key = secrets.token_hex(20)
            for number, piece in enumerate(pieces):
                await bucket.put(f"default.{key}.{number}", piece)
            record = await left_behind(edge, done, streams=True, key=key, **fields)
            async with following(http, record.response_id) as events:
                told = await events.rest()
            assert [event["sequence_number"] for event in told] == list(range(len(told)))
            assert (await http.get(f"/v1/responses/{record.response_id}")).json() == told[-1]["response"]
            return told

        beginning = [event(kind, {"response": done}, number) for number, kind in enumerate(BEGINNING)]
        told = await lost(*beginning)
        assert (told[-1]["type"], delta_of(told)) == ("response.completed", "Hello ☃!")
        num_turns = len(edge.relay.turns)
        part = half_an_answer()
        told = await lost(*beginning, part)
        failed = told[-1]["response"]
        assert (told[-1]["type"], text_of(failed)) == ("response.failed", "Hel")
        assert failed["output"][0]["status"] == "incomplete"
        assert "a part of its answer had been told" in failed["error"]["message"]
        told = await lost(*beginning, part, is_cancelled=True)
        assert (told[-1]["response"]["status"], text_of(told[-1]["response"])) == ("cancelled", "Hel")
        assert len(edge.relay.turns) == num_turns, "it is not made anew"


def half_an_answer() -> bytes:
    telling = Telling("0" * 40, ResponseRequest(model="m", input="Hello?"), created=0)
    return EventWriter(telling, num_before=3).data(
        Data(request_id="0" * 32, sender="x", seq=0, text="Hel", token_ids=(1,))
    )


async def test_who_finds_anothers_event_in_its_place_makes_it_no_longer(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    may_go_on = asyncio.Event()

    async def script(turn: Turn) -> None:
        await turn.prologue()
        await may_go_on.wait()
        await turn.data("Hello")
        await turn.cancelled.wait()
        await turn.end("cancelled")

    edge.relay.script = script
    async with asking(http) as events:
        first = await events.until("response.in_progress")
    response_id = first[0]["response"]["id"]
    kept = await events_kept(edge, response_id)
    bucket = await edge.bus.jetstream.key_value("baton_background_events")
    await bucket.put(f"default.{response_id[5:]}.{len(kept)}", b": of another edge\n\n")
    may_go_on.set()
    assert (await edge.relay.cancels.get()).request_id == edge.relay.turns[0].request_id
    going = await asked_until(http, response_id, lambda found: True)
    assert going["output"] == []


async def test_what_does_not_fit_is_told_by_its_last_event(own_nats: str, books: None) -> None:
    async with running_edge(own_nats, max_handoff_bytes=4000) as edge, client_of(edge) as http:

        async def long(turn: Turn) -> None:
            await turn.prologue()
            await turn.data("Hello")
            await turn.data(" you" * 1500)
            await turn.end()

        edge.relay.script = long
        async with asking(http) as events:
            told = await events.rest()
        assert delta_of(told) == "Hello"
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        last = told[-1]["response"]
        assert (told[-1]["type"], last["status"], last["output"]) == ("response.incomplete", "incomplete", [])
        assert (await http.get(f"/v1/responses/{last['id']}")).json() == last


async def test_a_follower_of_a_leaving_edge_is_told_to_go_on_elsewhere(own_nats: str, books: None) -> None:
    async def slow(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Hello")
        await turn.cancelled.wait()

    is_followed = asyncio.Event()

    async def followed(http: httpx.AsyncClient, response_id: str) -> list[dict[str, Any]]:
        async with following(http, response_id) as events:
            told = await events.until("response.output_text.delta")
            is_followed.set()
            return [*told, *await events.rest()]

    async with running_edge(own_nats, slow) as maker, client_of(maker) as elsewhere:
        async with asking(elsewhere) as events:
            first = await events.until("response.output_text.delta")
            response_id = first[0]["response"]["id"]
            async with running_edge(own_nats, slow, drain_for=0.1) as leaving:
                http = client_of(leaving)
                telling = asyncio.create_task(followed(http, response_id))
                await is_followed.wait()
                leaving.relay.hold_scripts = True
            told = await telling
            await http.aclose()
        assert told[: len(first)] == first
        [last] = told[len(first) :]
        assert (last["type"], last["code"]) == ("error", "shutting_down")
        assert last["sequence_number"] == first[-1]["sequence_number"], "who goes on behind it misses nothing"
        await elsewhere.post(f"/v1/responses/{response_id}/cancel")
