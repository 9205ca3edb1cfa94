"""POST /v1/responses/input_tokens against the real books and a replica that counts as scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from baton_common.bus import BusMessage
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import subject_token
from baton_contracts.tokens import TokensQuery, TokensReply
from tests.support.books import running_books
from tests.support.edge_process import RunningEdge, running_edge
from tests.support.nats_server import running_nats_server
from tests.support.openai_responses import whole

MODEL = "smollm2-135m"
PATH = "/v1/responses/input_tokens"
ASKED: dict[str, Any] = {"model": MODEL, "input": "Hello?"}
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@dataclass
class Counter:
    reply: TokensReply = field(default_factory=lambda: TokensReply(num_tokens=77))
    queries: list[TokensQuery] = field(default_factory=list[TokensQuery])


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[RunningEdge]:
    with running_nats_server(tmp_path / "nats") as nats_url:  # the queue is another kind
        async with running_books(nats_url, tmp_path), running_edge(nats_url) as running:
            yield running


@pytest.fixture
async def http(edge: RunningEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20) as client:
        yield client


@pytest.fixture
async def counter(edge: RunningEdge) -> AsyncIterator[Counter]:
    counter = Counter()
    sent: list[asyncio.Future[None]] = []

    def answer(message: BusMessage) -> None:
        counter.queries.append(TokensQuery.decode(message.payload))
        sent.append(asyncio.ensure_future(edge.relay.bus.publish(message.reply, counter.reply.encode())))

    await edge.relay.bus.subscribe(f"{subjects.ROOT}.tokens.{subject_token(MODEL)}.*", answer)
    yield counter
    await asyncio.gather(*sent)


async def test_it_is_what_the_replica_counts_and_nothing_runs(edge: RunningEdge, counter: Counter) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{edge.url}/v1", api_key=edge.headers["authorization"].split()[1]
    ) as client:
        counted = await client.responses.input_tokens.count(
            model=MODEL, input="Hello?", instructions="Be brief.", tools=[TOOL], truncation="auto"
        )
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", 77)
    (query,) = counter.queries
    assert [message.text for message in query.prompt.messages] == ["Be brief.", "Hello?"]
    assert [tool.name for tool in query.prompt.tools] == ["look"]
    assert query.sampling.truncate_prompt_tokens == -1
    assert edge.relay.turns == []


async def test_what_it_continues_counts_too(http: httpx.AsyncClient, counter: Counter) -> None:
    first = await whole(http, **ASKED)
    answer = await http.post(PATH, json=ASKED | {"input": "More?", "previous_response_id": first["id"]})
    assert answer.json() == {"object": "response.input_tokens", "input_tokens": 77}
    texts = [message.text for message in counter.queries[0].prompt.messages]
    assert (texts[0], texts[-1], len(texts)) == ("Hello?", "More?", 3)


async def test_an_answer_that_would_not_fit_does_not_matter_but_a_prompt_that_does_not_is_told(
    http: httpx.AsyncClient, counter: Counter
) -> None:
    assert (await http.post(PATH, json=ASKED | {"max_output_tokens": 10**6})).status_code == 200
    assert counter.queries[0].sampling.max_tokens is None
    counter.reply = TokensReply(error=ErrorBody(code="context_length_exceeded", message="9 of 8"))
    refused = await http.post(PATH, json=ASKED)
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "9 of 8")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": "no-such"}, (404, "model_not_found", "model")),
        ({"input": []}, (400, "invalid_value", "input")),
        ({"previous_response_id": "resp_none"}, (404, "not_found", "previous_response_id")),
        ({}, (503, "no_ready_replica", None)),
    ],
)
async def test_what_is_wrong_or_missing_is_named(
    http: httpx.AsyncClient, changes: dict[str, Any], expected: tuple[int, str, str | None]
) -> None:
    """Nobody counts here."""
    answer = await http.post(PATH, json=ASKED | changes)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == expected


async def test_only_with_a_key(http: httpx.AsyncClient) -> None:
    answer = await http.post(PATH, json=ASKED, headers={"authorization": "Bearer nobody"})
    assert answer.status_code == 401
