"""/v1/embeddings over HTTP and NATS, in front of an embedder whose vectors are known."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from baton_contracts.openai_embeddings import EmbeddingList
from baton_contracts.records import UsageRecord
from tests.support.edge_process import RunningEdge, running_edge
from tests.support.relay import eventually
from tests.support.scripted_embedder import MODEL, ScriptedEmbedder, direction, scripted_embedder

RID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
async def edge(nats_url: str) -> AsyncIterator[RunningEdge]:
    async with running_edge(nats_url) as running:
        yield running


@pytest.fixture
async def client(edge: RunningEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20) as opened:
        yield opened


@pytest.fixture
async def embedder(edge: RunningEdge, client: httpx.AsyncClient) -> AsyncIterator[ScriptedEmbedder]:
    async with scripted_embedder(edge.relay.bus) as running:
        await eventually(lambda: bool(edge.node.leases.ready("embedder")))
        yield running


async def ask(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"model": MODEL, "input": "abc"} | fields)


def error_of(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def rows(edge: RunningEdge) -> list[UsageRecord]:
    return [UsageRecord.decode(payload) for payload in edge.relay.records.get("usage", [])]


async def booked(edge: RunningEdge) -> UsageRecord:
    """The one ledger row. The bus keeps it, so it comes even if the answer was faster."""
    await eventually(lambda: bool(rows(edge)))
    (row,) = rows(edge)
    return row


@pytest.mark.parametrize(
    ("given", "lengths"),
    [("abc", [3]), (["abc", "abcde"], [3, 5]), ([7, 8], [2]), ([[7], [7, 8, 9]], [1, 3])],
)
async def test_each_form_of_input_gives_a_vector_an_item(
    client: httpx.AsyncClient, embedder: ScriptedEmbedder, given: Any, lengths: list[int]
) -> None:
    answer = EmbeddingList.model_validate((await ask(client, input=given)).json())
    assert [item.index for item in answer.data] == list(range(len(lengths)))
    for item, length in zip(answer.data, lengths, strict=True):
        assert item.embedding == pytest.approx(direction(length), abs=1e-7)
    assert answer.model == MODEL
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (sum(lengths), sum(lengths))


async def test_fewer_dimensions_are_cut_and_scaled_to_length_one(
    client: httpx.AsyncClient, embedder: ScriptedEmbedder
) -> None:
    response = await ask(client, input="x" * 60, dimensions=2)
    assert response.json()["data"][0]["embedding"] == pytest.approx((0.5, 0.8660254), abs=1e-6)
    whole = await ask(client, input="x" * 60, dimensions=3)
    assert whole.json()["data"][0]["embedding"] == pytest.approx((0.4, 0.6928203, 0.6), abs=1e-6)
    assert error_of(await ask(client, dimensions=4)) == (400, "invalid_value", "dimensions")


async def test_the_alias_is_answered_by_the_models_own_name(
    client: httpx.AsyncClient, embedder: ScriptedEmbedder
) -> None:
    assert (await ask(client, model="embedding")).json()["model"] == MODEL
    assert error_of(await ask(client, model="smollm2-135m")) == (404, "model_not_found", "model")


async def test_models_tell_of_the_embedder_while_it_is_there(
    client: httpx.AsyncClient, embedder: ScriptedEmbedder
) -> None:
    listed = (await client.get("/v1/models")).json()["data"]
    assert [(card["id"], card["task"], card["max_model_len"]) for card in listed] == [
        (MODEL, "embed", 100),
        ("embedding", "embed", 100),
    ]
    one = (await client.get(f"/v1/models/{MODEL}")).json()
    assert one == listed[0]
    assert one.keys() == {"id", "object", "created", "owned_by", "max_model_len", "task"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"input": ""}, (400, "invalid_value", "input")),
        ({"input": []}, (400, "invalid_value", "input")),
        ({"input": ["a", ""]}, (400, "invalid_value", "input")),
        ({"input": [[1], []]}, (400, "invalid_value", "input")),
        ({"input": ["a", 1]}, (400, "invalid_type", "input")),
        ({"input": [-1]}, (400, "invalid_type", "input")),
        ({"input": [True]}, (400, "invalid_type", "input")),
        ({"input": {"text": "a"}}, (400, "invalid_type", "input")),
        ({"input": ["a"] * 2049}, (400, "invalid_value", "input")),
        ({"input": [[1] * 100_001] * 3}, (400, "invalid_value", "input")),
        ({"input": "a" * 1_000_001}, (413, "request_too_large", "input")),
        ({"input": [999]}, (400, "invalid_value", "input")),
        ({"dimensions": 0}, (400, "invalid_value", "dimensions")),
        ({"dimensions": "2"}, (400, "invalid_type", "dimensions")),
        ({"truncate_prompt_tokens": -2}, (400, "invalid_value", "truncate_prompt_tokens")),
        ({"truncate_prompt_tokens": 99}, (400, "invalid_value", "truncate_prompt_tokens")),
        ({"encoding_format": "int8"}, (400, "invalid_value", "encoding_format")),
        ({"model": None}, (400, "invalid_type", "model")),
    ],
)
async def test_what_is_wrong_is_named(
    client: httpx.AsyncClient,
    embedder: ScriptedEmbedder,
    fields: dict[str, Any],
    expected: tuple[int, str, str],
) -> None:
    assert error_of(await ask(client, **fields)) == expected


async def test_unknown_fields_are_named_in_a_header_and_refused_in_strict_mode(
    nats_url: str, client: httpx.AsyncClient, embedder: ScriptedEmbedder
) -> None:
    assert (await ask(client, user="me", colour=1)).headers["x-baton-ignored-parameters"] == "colour,user"
    async with (
        running_edge(nats_url, strict=True) as strict,
        httpx.AsyncClient(base_url=strict.url, headers=strict.headers) as its,
    ):
        assert error_of(await ask(its, colour=1)) == (400, "unknown_parameter", "colour")


async def test_many_inputs_are_several_questions_and_come_back_in_order(
    client: httpx.AsyncClient, embedder: ScriptedEmbedder
) -> None:
    texts = ["x" * (1 + index % 90) for index in range(2048)]
    response = await ask(client, input=texts, encoding_format="base64")
    vectors = [struct.unpack("<3f", base64.b64decode(item["embedding"])) for item in response.json()["data"]]
    assert vectors == [pytest.approx(direction(len(text)), abs=1e-6) for text in texts]
    assert len(embedder.queries) > 8
    assert max(len(query.texts) for query in embedder.queries) <= 256
    for query in embedder.queries:
        assert query.texts == tuple(texts[query.first : query.first + len(query.texts)])


@pytest.mark.parametrize(("asked", "whole"), [({}, True), ({"truncate_prompt_tokens": -1}, False)])
async def test_texts_are_cut_only_where_the_client_says_so(
    client: httpx.AsyncClient, embedder: ScriptedEmbedder, asked: dict[str, int], *, whole: bool
) -> None:
    assert (await ask(client, input="x" * 500, **asked)).status_code == 200
    assert [query.whole for query in embedder.queries] == [whole]


async def test_a_call_is_one_row_of_the_ledger(
    edge: RunningEdge, client: httpx.AsyncClient, embedder: ScriptedEmbedder
) -> None:
    response = await ask(client, input=["abc", "de"])
    row = await booked(edge)
    assert (row.request_id, row.attempt) == (response.headers["x-request-id"], 1)
    assert (row.model, row.outcome, row.tenant.tenant_id) == (MODEL, "finished", "default")
    assert (row.usage.prompt_tokens, row.usage.completion_tokens) == (5, 0)


async def test_a_client_that_leaves_stops_the_questions_and_is_booked_as_cancelled(
    edge: RunningEdge, client: httpx.AsyncClient, embedder: ScriptedEmbedder
) -> None:
    embedder.may_answer.clear()
    asking = asyncio.create_task(ask(client, input=["x" * 80] * 2048))
    await eventually(lambda: len(embedder.queries) == 2)
    asking.cancel()
    row = await booked(edge)
    assert (row.outcome, row.usage.prompt_tokens) == ("cancelled", 0)
    await edge.finished()
    assert len(embedder.queries) == 2


async def test_without_an_embedder_it_is_503_by_name(client: httpx.AsyncClient, edge: RunningEdge) -> None:
    response = await ask(client)
    assert error_of(response) == (503, "no_responder", None)
    assert response.headers["x-baton-stop"] == "embedder"
    async with scripted_embedder(edge.relay.bus):
        await eventually(lambda: bool(edge.node.leases.ready("embedder")))
        assert (await ask(client)).status_code == 200
    await eventually(lambda: not edge.node.leases.ready("embedder"))
    assert error_of(await ask(client))[:2] == (503, "no_responder")
    assert error_of(await ask(client, model="other")) == (404, "model_not_found", "model")


async def test_the_way_of_a_call_is_in_its_trace(
    edge: RunningEdge, client: httpx.AsyncClient, embedder: ScriptedEmbedder
) -> None:
    await client.post("/v1/embeddings", json={"model": MODEL, "input": "a"}, headers={"x-request-id": RID})
    names = {span["name"] for span in await edge.relay.spans()}
    assert names == {"request", "admit", "hand_on", "handle", "wait"}
