"""The whole round by openai-python's own client: upload, create, poll, fetch; for each endpoint that a batch
may have, with a line that fails; and a batch that is cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import openai
import pytest
from openai.types import Batch

from tests.support.batch_files import MODEL, beating, jsonl, line, nats_url
from tests.support.edge_process import KEY, RunningEdge, Turn, hello, running_edge
from tests.support.relay import eventually
from tests.support.scripted_embedder import MODEL as EMBEDDER
from tests.support.scripted_embedder import scripted_embedder

__all__ = ["nats_url"]

Endpoint = Literal["/v1/completions", "/v1/responses", "/v1/embeddings"]


@asynccontextmanager
async def client_of(edge: RunningEdge) -> AsyncGenerator[openai.AsyncOpenAI]:
    transport = httpx.AsyncClient(trust_env=False)
    async with openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key=KEY, http_client=transport) as sdk:
        yield sdk


async def until(sdk: openai.AsyncOpenAI, batch: Batch, *states: str) -> Batch:
    async with asyncio.timeout(15):
        while batch.status not in states:
            batch = await sdk.batches.retrieve(batch.id)
    return batch


async def rows_of(sdk: openai.AsyncOpenAI, file_id: str | None) -> dict[str, Any]:
    assert file_id
    rows = [json.loads(row) for row in (await sdk.files.content(file_id)).text.splitlines()]
    return {row["custom_id"]: row for row in rows}


async def test_the_round(nats_url: str) -> None:
    async with running_edge(nats_url) as edge, beating(edge), client_of(edge) as sdk:
        content = jsonl(line("one"), line("two", temperature=9), line("three"))
        file = await sdk.files.create(file=("questions.jsonl", content), purpose="batch")
        assert (file.filename, file.bytes, file.purpose) == ("questions.jsonl", len(content), "batch")
        batch = await sdk.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"run": "7"},
        )
        assert (batch.status, batch.metadata) == ("validating", {"run": "7"})
        batch = await until(sdk, batch, "completed", "failed")
        assert batch.status == "completed"
        assert batch.request_counts
        assert batch.request_counts.model_dump() == {"total": 3, "completed": 2, "failed": 1}
        rows = await rows_of(sdk, batch.output_file_id)
        assert rows.keys() == {"one", "three"}
        for row in rows.values():
            assert row["error"] is None
            assert row["response"]["status_code"] == 200
            assert row["response"]["body"]["choices"][0]["message"]["content"] == "Hello ☃!"
        wrong = await rows_of(sdk, batch.error_file_id)
        assert wrong.keys() == {"two"}
        assert wrong["two"]["response"]["status_code"] == 400
        assert wrong["two"]["response"]["body"]["error"]["param"] == "temperature"
        listed = [item.id async for item in sdk.batches.list()]
        assert batch.id in listed
        outputs = [item.id async for item in sdk.files.list(purpose="batch_output")]  # type: ignore[arg-type]
        assert set(outputs) == {batch.output_file_id, batch.error_file_id}
        assert (await sdk.files.delete(file.id)).deleted
        assert [turn.handoff.chat.priority for turn in edge.relay.turns] == [1000, 1000]


def _completion_text(body: Any) -> object:
    assert body["object"] == "text_completion"
    return body["choices"][0]["text"]


def _response_text(body: Any) -> object:
    assert (body["object"], body["status"]) == ("response", "completed")
    return body["output"][0]["content"][0]["text"]


def _vector_size(body: Any) -> object:
    assert body["usage"]["prompt_tokens"] == 3
    return len(body["data"][0]["embedding"])


@pytest.mark.parametrize(
    ("endpoint", "body", "wrong", "param", "read", "expected"),
    [
        (
            "/v1/completions",
            {"model": MODEL, "prompt": "one"},
            {"temperature": 9},
            "temperature",
            _completion_text,
            "Hello ☃!",
        ),
        (
            "/v1/responses",
            {"model": MODEL, "input": "one"},
            {"top_p": 7},
            "top_p",
            _response_text,
            "Hello ☃!",
        ),
        (
            "/v1/embeddings",
            {"model": EMBEDDER, "input": "one"},
            {"dimensions": 4000},
            "dimensions",
            _vector_size,
            3,
        ),
    ],
)
async def test_each_endpoint_and_a_line_that_fails(
    nats_url: str, endpoint: Endpoint, body: Any, wrong: Any, param: str, read: Any, expected: object
) -> None:
    lines = {"good": body, "bad": body | wrong, "good too": body}
    content = jsonl(
        *(
            {"custom_id": name, "method": "POST", "url": endpoint, "body": each}
            for name, each in lines.items()
        )
    )
    async with (
        running_edge(nats_url) as edge,
        beating(edge),
        scripted_embedder(edge.relay.bus),
        client_of(edge) as sdk,
    ):
        await eventually(lambda: bool(edge.node.leases.ready("embedder")))
        file = await sdk.files.create(file=("lines.jsonl", content), purpose="batch")
        batch = await sdk.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
        batch = await until(sdk, batch, "completed", "failed", "expired")
        assert batch.request_counts
        assert batch.request_counts.model_dump() == {"total": 3, "completed": 2, "failed": 1}
        answers = await rows_of(sdk, batch.output_file_id)
        assert answers.keys() == {"good", "good too"}
        assert [read(row["response"]["body"]) for row in answers.values()] == [expected] * 2
        failed = await rows_of(sdk, batch.error_file_id)
        assert failed["bad"]["response"]["status_code"] == 400
        assert failed["bad"]["response"]["body"]["error"]["param"] == param


async def test_a_batch_of_responses_that_is_cancelled_while_it_runs(nats_url: str) -> None:
    """What is done stays; what is under way ends, and is told to the relay."""

    async def by_its_text(turn: Turn) -> None:
        if turn.handoff.chat.messages[0].text == "question 0":
            await hello(turn)
        else:
            await turn.prologue()
            await turn.cancelled.wait()

    url = "/v1/responses"
    bodies = [{"model": MODEL, "input": f"question {number}"} for number in range(3)]
    content = jsonl(
        *({"custom_id": body["input"], "method": "POST", "url": url, "body": body} for body in bodies)
    )
    async with running_edge(nats_url, by_its_text) as edge, beating(edge), client_of(edge) as sdk:
        file = await sdk.files.create(file=("lines.jsonl", content), purpose="batch")
        batch = await sdk.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
        await edge.relay.took(3)
        async with asyncio.timeout(15):
            while not ((counts := batch.request_counts) and counts.completed):
                batch = await sdk.batches.retrieve(batch.id)
        assert (await sdk.batches.cancel(batch.id)).status in ("cancelling", "cancelled")
        batch = await until(sdk, batch, "cancelled")
        assert (await rows_of(sdk, batch.output_file_id)).keys() == {"question 0"}
        assert batch.error_file_id is None
        assert sum(turn.cancelled.is_set() for turn in edge.relay.turns) == 2
