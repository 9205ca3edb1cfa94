"""/v1/responses against a scripted relay and the real books: answers, chains, what is stored and what not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from baton_common.nats_bus import NatsBus
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import RatedToken, TokenLogprob, ToolCallPiece
from baton_contracts.prompt import ChatRequest
from baton_contracts.records import ConversationRecord
from baton_contracts.subjects import BUCKET_KEYS
from baton_edge_api.keys import key_hash
from tests.support.books import running_books
from tests.support.edge_process import RunningEdge, Script, Turn, hello, running_edge
from tests.support.nats_server import running_nats_server
from tests.support.openai_responses import TOOLS, judged, streamed, text_of, whole

ASKED: dict[str, Any] = {"model": "smollm2-135m", "input": "Hello?"}
RIVAL_KEY = "sk-rival"
RIVAL = {"key_id": "k", "tenant_id": "rival", "team": "t", "name": "n", "created_at": 1.0, "revoked": False}


@pytest.fixture(scope="module")
def own_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    async def add_rival(url: str) -> None:
        bus = await NatsBus.connect(url, name="test")
        keys = await bus.jetstream.create_key_value(bucket=BUCKET_KEYS)
        await keys.put(key_hash(RIVAL_KEY), json.dumps(RIVAL).encode())
        await bus.close()

    with running_nats_server(tmp_path_factory.mktemp("nats")) as url:
        asyncio.run(add_rival(url))
        yield url


@pytest.fixture
async def edge(own_nats: str, tmp_path: Path) -> AsyncIterator[RunningEdge]:
    async with running_books(own_nats, tmp_path), running_edge(own_nats) as running:
        yield running


@pytest.fixture
async def http(edge: RunningEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20) as client:
        yield client


def saying(*words: str) -> Script:
    async def script(turn: Turn) -> None:
        await turn.prologue()
        for word in words:
            await turn.data(word)
        await turn.end()

    return script


async def calling(turn: Turn) -> None:
    """Thinks, speaks, calls twice."""
    await turn.prologue(citations=("a.md",))
    await turn.data(reasoning="Hm, ")
    await turn.data(reasoning="two.")
    await turn.data("I look.")
    begin = ToolCallPiece(index=0, call_id="call_1", name="add")
    await turn.data(tool_calls=(begin,))
    await turn.data(tool_calls=(ToolCallPiece(index=0, arguments='{"a":'),))
    rest = ToolCallPiece(index=0, arguments="1}", is_whole=True)
    second = ToolCallPiece(index=1, call_id="call_2", name="weather", arguments='{"a":2}', is_whole=True)
    await turn.data(tool_calls=(rest, second))
    await turn.end("tool_calls", reasoning_tokens=2)


def asked_of(edge: RunningEdge) -> ChatRequest:
    return edge.relay.turns[-1].handoff.chat


def shown(edge: RunningEdge) -> list[tuple[str, str, str]]:
    """Role, origin and text of what the last request showed to the model."""
    return [
        (message.role, message.parts[0].origin if message.parts else "", message.text)
        for message in asked_of(edge).messages
    ]


def without_ids(response: dict[str, Any]) -> list[dict[str, Any]]:
    return [item | {"id": ""} for item in response["output"]]


async def refused(client: httpx.AsyncClient, status: int, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/responses", json=ASKED | body)
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


# Answers


async def test_a_whole_response_says_all_that_was_asked(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    answer = await http.post(
        "/v1/responses",
        json=ASKED
        | {
            "instructions": "Be brief.",
            "metadata": {"a": "b"},
            "temperature": 0.5,
            "max_output_tokens": 50,
            "tools": TOOLS[:1],
            "tool_choice": {"type": "function", "name": "add"},
            "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
            "user": "u",
        },
    )
    response = judged(answer.json())
    turn = edge.relay.turns[-1]
    assert response["id"] == f"resp_{turn.request_id}{turn.handoff.envelope.run_id}"
    assert answer.headers["x-request-id"] == turn.request_id
    assert answer.headers["x-baton-ignored-parameters"] == "user"
    [message] = response["output"]
    assert message["id"] == f"msg_{response['id'][5:]}o0"
    assert message["content"] == [
        {"type": "output_text", "text": "Hello ☃!", "annotations": [], "logprobs": []}
    ]
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8,
    }
    assert (response["status"], response["error"], response["incomplete_details"]) == (
        "completed",
        None,
        None,
    )
    assert (response["instructions"], response["metadata"], response["user"]) == (
        "Be brief.",
        {"a": "b"},
        "u",
    )
    assert (response["store"], response["truncation"], response["model"]) == (
        True,
        "disabled",
        "smollm2-135m",
    )
    assert response["tool_choice"] == {"type": "function", "name": "add"}
    assert response["text"]["format"]["name"] == "x"
    chat = asked_of(edge)
    assert shown(edge) == [("system", "client", "Be brief."), ("user", "client", "Hello?")]
    assert (chat.sampling.max_tokens, chat.sampling.temperature, chat.trim_history) == (50, 0.5, False)
    assert (chat.tool_choice.mode, chat.tool_choice.name, chat.tools[0].strict) == ("required", "add", True)
    assert chat.sampling.structured is not None
    assert chat.sampling.structured.text == '{"type":"object"}'


async def test_a_stream_of_text(http: httpx.AsyncClient) -> None:
    events = await streamed(http, **ASKED)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["delta"] for event in events[4:7]] == ["Hel", "lo", " ☃!"]
    assert text_of(events[-1]["response"]) == "Hello ☃!"
    assert (events[0]["response"]["status"], events[0]["response"]["usage"]) == ("in_progress", None)


async def test_thinking_text_and_two_calls_streamed_and_whole(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    edge.relay.script = calling
    events = await streamed(http, **ASKED, tools=TOOLS)
    response = await whole(http, **ASKED, tools=TOOLS)
    kinds = ["reasoning", "message", "function_call", "function_call"]
    assert [item["type"] for item in response["output"]] == kinds
    reasoning, message, first, second = response["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm, two."}]
    assert (message["content"][0]["text"], message["status"]) == ("I look.", "completed")
    assert (first["call_id"], first["name"], first["arguments"]) == ("call_1", "add", '{"a":1}')
    assert (second["call_id"], second["name"], second["arguments"]) == ("call_2", "weather", '{"a":2}')
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}
    assert response["baton"] == {"citations": ["a.md"]}
    told = events[-1]["response"]
    assert [item | {"id": ""} for item in told["output"]] == [
        item | {"id": ""} for item in response["output"]
    ]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [item["status"] for item in added] == ["in_progress"] * 4
    assert added[2]["arguments"] == ""


async def test_logprobs_where_they_are_included(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    token = TokenLogprob(
        text="Hi",
        token_bytes=(72, 105),
        logprob=-0.5,
        top=(RatedToken(text="Hi", token_bytes=(72, 105), logprob=-0.5),),
    )

    async def script(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Hi", logprobs=(token,))
        await turn.end()

    edge.relay.script = script
    wanted: dict[str, Any] = ASKED | {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    events = await streamed(http, **wanted)
    response = await whole(http, **wanted)
    entry = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}
    rated = [entry | {"top_logprobs": [entry]}]
    assert events[4]["logprobs"] == rated
    assert response["output"][0]["content"][0]["logprobs"] == rated
    assert asked_of(edge).sampling.logprobs == 1


@pytest.mark.parametrize(
    ("reason", "detail"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
async def test_an_answer_that_is_not_whole_is_incomplete(
    edge: RunningEdge, http: httpx.AsyncClient, reason: str, detail: str
) -> None:
    async def script(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Once upon")
        await turn.end(reason)

    edge.relay.script = script
    events = await streamed(http, **ASKED)
    assert events[-1]["type"] == "response.incomplete"
    response = await whole(http, **ASKED)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": detail})
    assert response["output"][0]["status"] == "incomplete"


async def test_an_answer_without_a_word_has_an_empty_message(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    edge.relay.script = saying()
    response = await whole(http, **ASKED)
    assert text_of((await streamed(http, **ASKED))[-1]["response"]) == text_of(response) == ""
    assert [item["type"] for item in response["output"]] == ["message"]


# Chains


async def test_a_response_is_continued_the_moment_it_has_ended(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    previous = None
    for number in range(5):
        events = await streamed(
            http, model="m", input=f"Q{number}", instructions=f"I{number}", previous_response_id=previous
        )
        previous = events[-1]["response"]["id"]
    asked = [("user", "history", f"Q{number}") for number in range(4)]
    answers = [("assistant", "history", "Hello ☃!")] * 4
    before = [each for pair in zip(asked, answers, strict=True) for each in pair]
    assert shown(edge) == [("system", "client", "I4"), *before, ("user", "client", "Q4")]


async def test_a_tool_loop_over_a_chain(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    edge.relay.script = calling
    first = await whole(http, **ASKED, tools=TOOLS)
    edge.relay.script = hello
    outputs = [
        {"type": "function_call_output", "call_id": "call_1", "output": "3"},
        {
            "type": "function_call_output",
            "call_id": "call_2",
            "output": [{"type": "input_text", "text": "rain"}],
        },
    ]
    second = await whole(http, model="m", input=outputs, previous_response_id=first["id"], tools=TOOLS)
    assert second["previous_response_id"] == first["id"]
    assert shown(edge) == [
        ("user", "history", "Hello?"),
        ("assistant", "history", "I look."),
        ("tool", "tool", "3"),
        ("tool", "tool", "rain"),
    ]
    answer = asked_of(edge).messages[1]
    assert [(call.call_id, call.name, call.arguments) for call in answer.tool_calls] == [
        ("call_1", "add", '{"a":1}'),
        ("call_2", "weather", '{"a":2}'),
    ]
    error = await refused(
        http,
        400,
        input=[{"type": "function_call_output", "call_id": "call_9", "output": ""}],
        previous_response_id=first["id"],
    )
    assert error["param"] == "input[0].call_id"


async def test_items_are_found_by_their_ids(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    first = await whole(http, **ASKED)
    key = first["id"][5:]
    items = [
        {"type": "item_reference", "id": f"msg_{key}i0"},
        {"id": first["output"][0]["id"]},
        {"role": "user", "content": "And now?"},
    ]
    second = await whole(http, model="m", input=items)
    assert shown(edge) == [
        ("user", "history", "Hello?"),
        ("assistant", "history", "Hello ☃!"),
        ("user", "client", "And now?"),
    ]
    listed = (await http.get(f"/v1/responses/{second['id']}/input_items?order=asc")).json()
    assert [item["id"] for item in listed["data"]][:2] == [f"msg_{key}i0", f"msg_{key}o0"]
    for unknown in (f"msg_{key}o7", f"msg_{'0' * 40}o0", "msg_x"):
        error = await refused(http, 404, input=[items[2], {"type": "item_reference", "id": unknown}])
        assert (error["code"], error["param"]) == ("not_found", "input[1].id")


async def test_what_is_not_there_is_a_404_before_anything_runs(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    for unknown in ("resp_x", f"resp_{'0' * 40}"):
        error = await refused(http, 404, previous_response_id=unknown)
        assert (error["code"], error["param"]) == ("not_found", "previous_response_id")
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items")):
            answer = await http.request(method, f"/v1/responses/{unknown}{path}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert edge.relay.turns == []


async def test_a_chain_that_is_longer_than_a_request_may_be_is_refused(own_nats: str, tmp_path: Path) -> None:
    async with (
        running_books(own_nats, tmp_path),
        running_edge(own_nats, max_text_chars=1000) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as http,
    ):
        first = await whole(http, model="m", input="x" * 600)
        error = await refused(http, 413, input="x" * 600, previous_response_id=first["id"])
        assert (error["code"], error["param"]) == ("request_too_large", "input")
        await whole(http, model="m", input="x" * 300, previous_response_id=first["id"])


# What is stored


async def test_a_stored_response_is_given_back_and_forgotten(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    response = await whole(http, **ASKED, metadata={"a": "b"})
    path = f"/v1/responses/{response['id']}"
    assert judged((await http.get(path)).json()) == response
    follow_up = await whole(http, **ASKED, previous_response_id=response["id"])
    deleted = await http.delete(path)
    assert deleted.json() == {"id": response["id"], "object": "response", "deleted": True}
    assert (await http.get(path)).status_code == 404
    assert (await http.delete(path)).status_code == 404
    error = await refused(http, 404, previous_response_id=follow_up["id"])
    assert response["id"] in error["message"], "what it continued is gone"
    assert (await http.get(f"/v1/responses/{follow_up['id']}")).status_code == 200


async def test_input_items_come_in_pages(http: httpx.AsyncClient) -> None:
    items: list[dict[str, Any]] = [{"role": "user", "content": f"Q{number}"} for number in range(5)]
    items[3] = {"role": "assistant", "content": [{"type": "output_text", "text": "A3"}], "id": "own"}
    items[4] = {"role": "user", "content": "Q4", "id": "own"}
    response = await whole(http, model="m", input=items)
    key = response["id"][5:]
    path = f"/v1/responses/{response['id']}/input_items"
    page = (await http.get(path, params={"limit": "2"})).json()
    assert [item["id"] for item in page["data"]] == [f"msg_{key}i4", "own"]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (f"msg_{key}i4", "own", True)
    page = (await http.get(path, params={"after": "own"})).json()
    assert [item["content"][0]["text"] for item in page["data"]] == ["Q2", "Q1", "Q0"]
    assert page["has_more"] is False
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=nobody"):
        answer = await http.get(f"{path}?{query}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.split("=")[0])


async def test_of_another_tenant_nothing_is_there(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    response = await whole(http, **ASKED)
    headers = {"authorization": f"Bearer {RIVAL_KEY}"}
    async with httpx.AsyncClient(base_url=edge.url, headers=headers) as rival:
        await refused(rival, 404, previous_response_id=response["id"])
        reference = {"type": "item_reference", "id": response["output"][0]["id"]}
        await refused(rival, 404, input=[reference])
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items")):
            answer = await rival.request(method, f"/v1/responses/{response['id']}{path}")
            assert answer.status_code == 404
    assert (await http.get(f"/v1/responses/{response['id']}")).status_code == 200


async def test_what_is_not_to_be_stored_is_not(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    response = await whole(http, **ASKED, store=False)
    assert response["store"] is False
    assert (await http.get(f"/v1/responses/{response['id']}")).status_code == 404
    await refused(http, 404, previous_response_id=response["id"])
    assert edge.relay.records == {}


async def test_a_conversation_of_ours_goes_on(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    response = await whole(http, **ASKED, conversation={"id": "talk-1"}, instructions="Once.")
    assert response["conversation"] == {"id": "talk-1"}
    handoff = edge.relay.turns[-1].handoff
    assert (handoff.envelope.conversation_id, handoff.chat.continue_conversation) == ("talk-1", True)
    record = ConversationRecord.decode(await edge.relay.record("conversation"))
    assert [(said.role, said.content) for said in record.asked] == [("user", "Hello?")]
    turns = (await http.get("/v1/conversations/talk-1")).json()["turns"]
    assert [turn["answer"] for turn in turns] == ["Hello ☃!"]
    error = await refused(http, 400, conversation="talk-1", previous_response_id=response["id"])
    assert error["param"] == "previous_response_id"


# Ends that are not wanted


async def test_an_answer_that_breaks_off_fails_and_is_kept_so_far(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    async def script(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Once upon")
        await turn.data(tool_calls=(ToolCallPiece(index=0, call_id="c", name="add", arguments='{"a'),))
        await turn.error(ErrorBody(code="upstream_error", message="It broke.", stop="llm_gateway"))

    edge.relay.script = script
    events = await streamed(http, **ASKED, tools=TOOLS)
    error, failed = events[-2:]
    assert (error["type"], error["code"], error["message"]) == ("error", "upstream_error", "It broke.")
    response = failed["response"]
    assert (response["status"], response["usage"]) == ("failed", None)
    assert response["error"] == {"code": "server_error", "message": "It broke."}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert (await http.get(f"/v1/responses/{response['id']}")).json() == response
    edge.relay.script = hello
    await whole(http, model="m", input="Go on.", previous_response_id=response["id"])
    assert shown(edge) == [
        ("user", "history", "Hello?"),
        ("assistant", "history", "Once upon"),
        ("user", "client", "Go on."),
    ]
    assert asked_of(edge).messages[1].tool_calls == (), "half a call is not shown again"


async def test_before_the_first_byte_an_error_is_a_status_and_nothing_is_kept(
    edge: RunningEdge, http: httpx.AsyncClient
) -> None:
    async def script(turn: Turn) -> None:
        await turn.error(ErrorBody(code="context_length_exceeded", message="Too long.", param="messages"))

    edge.relay.script = script
    for stream in (True, False):
        assert (await refused(http, 400, stream=stream))["code"] == "context_length_exceeded"
    assert edge.relay.records == {}


async def test_a_client_that_leaves_can_go_on_at_once(edge: RunningEdge, http: httpx.AsyncClient) -> None:
    async def script(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Once upon")
        await turn.cancelled.wait()
        await turn.end("cancelled", completion_tokens=2)

    edge.relay.script = script
    response_id = ""
    async with http.stream("POST", "/v1/responses", json=ASKED | {"stream": True}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                event = json.loads(line[6:])
                response_id = event.get("response", {}).get("id", response_id)
                if event["type"] == "response.output_text.delta":
                    break
    edge.relay.script = hello
    await whole(http, model="m", input="Go on.", previous_response_id=response_id)
    assert shown(edge)[1] == ("assistant", "history", "Once upon")
    kept = judged((await http.get(f"/v1/responses/{response_id}")).json())
    assert (kept["status"], kept["error"], kept["output"][0]["status"]) == ("cancelled", None, "incomplete")


async def test_without_the_books_answers_come_and_only_what_is_stored_does_not(own_nats: str) -> None:
    async with (
        running_edge(own_nats) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as http,
    ):
        response = await whole(http, **ASKED)
        answer = await http.post("/v1/responses", json=ASKED | {"previous_response_id": response["id"]})
        assert (answer.status_code, answer.headers["x-baton-stop"]) == (503, "after_answer")
        assert (await http.get(f"/v1/responses/{response['id']}")).status_code == 503
