"""Batches over HTTP, run by the edge through a scripted relay, beside people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.openai_batches import Batch, BatchList
from tests.support.batch_files import beating, begun, counted, jsonl, line, nats_url, reached, results
from tests.support.edge_process import QUESTION, RunningEdge, Turn, hello, running_edge
from tests.support.relay import eventually
from tests.support.scripted_embedder import MODEL as EMBEDDER
from tests.support.scripted_embedder import scripted_embedder

__all__ = ["nats_url"]


@pytest.fixture
async def edge(nats_url: str) -> AsyncIterator[RunningEdge]:
    async with running_edge(nats_url, batch_lines_at_once=8) as running:
        yield running


@pytest.fixture
async def client(edge: RunningEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20) as opened:
        yield opened


def error_of(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def numbered(count: int) -> bytes:
    return jsonl(*(line(f"line-{number}", f"question {number}") for number in range(count)))


async def until_cancelled(turn: Turn) -> None:
    await turn.prologue()
    await turn.cancelled.wait()
    await turn.end("cancelled")


async def test_lines_run_side_by_side_within_the_bound(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    at_once = most = 0
    gate = asyncio.Event()

    async def counting(turn: Turn) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 8:
            gate.set()
        await gate.wait()
        at_once -= 1
        await hello(turn)

    edge.relay.script = counting
    async with beating(edge, max_running=64):
        batch = await begun(client, numbered(20), metadata={"a": "b"})
        over = Batch.model_validate(await reached(client, batch["id"], "completed"))
    assert most == 8
    assert (over.request_counts.total, over.request_counts.completed, over.request_counts.failed) == (
        20,
        20,
        0,
    )
    assert over.error_file_id is None
    assert over.metadata == {"a": "b"}
    assert over.output_file_id
    found = await results(client, over.output_file_id)
    assert found.keys() == {f"line-{number}" for number in range(20)}
    times = (over.created_at, over.in_progress_at, over.finalizing_at, over.completed_at)
    assert all(times)
    assert list(times) == sorted(times)  # type: ignore[type-var]
    text = (await client.get("/metrics")).text
    assert 'baton:batch_lines_total{outcome="completed"} 20.0' in text


async def test_never_ahead_of_a_person(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    """A replica of one seat. While somebody waits no line starts; one that runs gives its seat back, a person
    is answered, and then the line is run again, once."""
    async with beating(edge, max_running=1, num_running=1, num_waiting=1) as replica:
        batch = await begun(client, numbered(1))
        await reached(client, batch["id"], "in_progress")
        assert (await client.post("/v1/chat/completions", json=QUESTION)).status_code == 200
        assert len(edge.relay.turns) == 1  # the person's
        edge.relay.script = until_cancelled
        replica |= {"num_running": 0, "num_waiting": 0}
        await edge.relay.took(2)
        assert edge.relay.turns[1].handoff.chat.priority == 1000
        assert edge.relay.turns[0].handoff.chat.priority == 0
        replica |= {
            "num_running": 1,
            "num_waiting": 1,
        }  # somebody came, and the line has the only seat
        await asyncio.wait_for(edge.relay.turns[1].cancelled.wait(), 20)
        edge.relay.script = hello
        assert (await client.post("/v1/chat/completions", json=QUESTION)).status_code == 200
        assert len(edge.relay.turns) == 3
        assert (await client.get(f"/v1/batches/{batch['id']}")).json()["status"] == "in_progress"
        replica |= {"num_running": 0, "num_waiting": 0}
        over = await reached(client, batch["id"], "completed")
    assert over["request_counts"] == {"total": 1, "completed": 1, "failed": 0}
    first, again = edge.relay.turns[1], edge.relay.turns[3]
    assert first.request_id == again.request_id
    assert len(edge.relay.turns) == 4


async def test_without_a_replica_a_few_lines_ask_and_wait(
    edge: RunningEdge, client: httpx.AsyncClient
) -> None:
    async def refusing(turn: Turn) -> None:
        text = "No replica."
        await turn.error(ErrorBody(code="no_ready_replica", message=text, retry_after_seconds=0.1))

    edge.relay.script = refusing
    batch = await begun(client, numbered(1))
    await edge.relay.took(1)
    edge.relay.script = hello
    over = await reached(client, batch["id"], "completed")
    assert over["request_counts"]["completed"] == 1
    assert len(edge.relay.turns) == 2


async def test_a_file_that_is_no_batch_fails_with_its_problems(client: httpx.AsyncClient) -> None:
    content = jsonl(line("a"), line("a"), line("b", url="/v1/embeddings")) + b"nonsense\n"
    batch = await begun(client, content)
    over = Batch.model_validate(await reached(client, batch["id"], "failed"))
    assert over.errors
    assert [(problem.code, problem.line) for problem in over.errors.data] == [
        ("duplicate_custom_id", 2),
        ("mismatched_url", 3),
        ("invalid_json_line", 4),
    ]
    assert (over.output_file_id, over.error_file_id) == (None, None)
    assert over.failed_at


async def test_lines_that_fail_are_in_the_error_file(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    async with beating(edge):
        content = jsonl(line("good"), line("streamed", stream=True), line("hot", temperature=9))
        batch = await begun(client, content)
        over = await reached(client, batch["id"], "completed")
    assert over["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    wrong = await results(client, over["error_file_id"])
    params = {name: item["response"]["body"]["error"]["param"] for name, item in wrong.items()}
    assert params == {"streamed": "stream", "hot": "temperature"}
    assert all(item["response"]["status_code"] == 400 for item in wrong.values())


async def test_a_cancelled_batch_keeps_what_it_has(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    async def by_its_text(turn: Turn) -> None:
        first = turn.handoff.chat.messages[0].text == "question 0"
        await (hello(turn) if first else until_cancelled(turn))

    edge.relay.script = by_its_text
    async with beating(edge):
        batch = await begun(client, numbered(3))
        await edge.relay.took(3)
        await counted(client, batch["id"], 1)
        cancelling = (await client.post(f"/v1/batches/{batch['id']}/cancel")).json()
        assert cancelling["status"] in ("cancelling", "cancelled")
        over = await reached(client, batch["id"], "cancelled")
    assert over["request_counts"] == {"total": 3, "completed": 1, "failed": 0}
    assert (await results(client, over["output_file_id"])).keys() == {"line-0"}
    assert all(turn.cancelled.is_set() for turn in edge.relay.turns[1:])
    assert over["cancelled_at"] >= over["cancelling_at"]
    again = await client.post(f"/v1/batches/{batch['id']}/cancel")
    assert again.json()["status"] == "cancelled"


async def test_a_batch_is_over_with_its_window(nats_url: str) -> None:
    async with (
        running_edge(nats_url, until_cancelled, batch_window_seconds=2) as edge,
        beating(edge),
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        batch = await begun(client, numbered(2))
        over = await reached(client, batch["id"], "expired")
        assert over["request_counts"] == {"total": 2, "completed": 0, "failed": 2}
        late = await results(client, over["error_file_id"])
        assert {item["error"]["code"] for item in late.values()} == {"batch_expired"}
        assert over["expired_at"] >= over["expires_at"]
        refused = await client.post(f"/v1/batches/{batch['id']}/cancel")
        assert error_of(refused) == (409, "conflict", None)


async def test_all_prompts_of_a_completion_stand_back(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    url = "/v1/completions"
    body = {"model": "smollm2-135m", "prompt": ["one", "two"]}
    async with beating(edge):
        batch = await begun(
            client, jsonl({"custom_id": "a", "method": "POST", "url": url, "body": body}), url
        )
        over = await reached(client, batch["id"], "completed")
    (answer,) = (await results(client, over["output_file_id"])).values()
    assert [choice["text"] for choice in answer["response"]["body"]["choices"]] == ["Hello ☃!"] * 2
    assert [turn.handoff.chat.priority for turn in edge.relay.turns] == [1000, 1000]


async def test_embeddings_go_through_batches_too(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    async with scripted_embedder(edge.relay.bus):
        await eventually(lambda: bool(edge.node.leases.ready("embedder")))
        url = "/v1/embeddings"
        lines = [
            {"custom_id": text, "method": "POST", "url": url, "body": {"model": EMBEDDER, "input": text}}
            for text in ("one", "three")
        ]
        batch = await begun(client, jsonl(*lines), url)
        over = await reached(client, batch["id"], "completed")
    found = await results(client, over["output_file_id"])
    usage = {name: item["response"]["body"]["usage"]["prompt_tokens"] for name, item in found.items()}
    assert usage == {"one": 3, "three": 5}


async def test_an_edge_that_leaves_hands_over_what_is_left(nats_url: str) -> None:
    """Of two edges one runs the batch. It goes, the other ends it, and finished lines are not run again."""
    async with running_edge(nats_url) as second, beating(second) as replica:
        replica |= {"max_running": 4}

        async def by_its_text(turn: Turn) -> None:
            stuck = turn.handoff.chat.messages[0].text == "question 1"
            await (until_cancelled(turn) if stuck else hello(turn))

        second.relay.script = by_its_text
        async with (
            running_edge(nats_url, by_its_text) as first,
            httpx.AsyncClient(base_url=first.url, headers=first.headers) as client,
        ):
            batch = await begun(client, numbered(3))
            await counted(client, batch["id"], 2)
            first.relay.hold_scripts = True  # only the edge that leaves ends the line
            second.relay.script = first.relay.script = hello
        async with httpx.AsyncClient(base_url=second.url, headers=second.headers) as client:
            over = await reached(client, batch["id"], "completed")
            assert over["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
            found = await results(client, over["output_file_id"])
    assert found.keys() == {"line-0", "line-1", "line-2"}
    asked = [turn.handoff.chat.messages[0].text for turn in (*first.relay.turns, *second.relay.turns)]
    assert (asked.count("question 0"), asked.count("question 2")) == (1, 1)
    assert asked.count("question 1") == 2


async def test_what_can_not_be_a_batch_is_refused(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    good = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    notes = (
        await client.post("/v1/files", files={"file": ("n", b"x")}, data={"purpose": "user_data"})
    ).json()["id"]
    cases = [
        (good, (400, "missing_required_parameter", "input_file_id")),
        (good | {"input_file_id": "file-none"}, (404, "not_found", "input_file_id")),
        (good | {"input_file_id": notes}, (400, "invalid_value", "input_file_id")),
        (good | {"input_file_id": notes, "endpoint": "/v1/models"}, (400, "invalid_value", "endpoint")),
        (
            good | {"input_file_id": notes, "completion_window": "1h"},
            (400, "invalid_value", "completion_window"),
        ),
        (good | {"input_file_id": notes, "metadata": {"a": 1}}, (400, "invalid_type", "metadata.a")),
    ]
    for body, expected in cases:
        assert error_of(await client.post("/v1/batches", json=body)) == expected
    for path in ("batch_none", "batch_" + "0" * 24, "batch_*"):
        assert error_of(await client.get(f"/v1/batches/{path}")) == (404, "not_found", "batch_id")
    assert BatchList.model_validate((await client.get("/v1/batches")).json()).data == []


async def test_a_store_that_was_wiped_is_made_anew(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/files")).status_code == 200
    await edge.relay.bus.jetstream.delete_stream(f"KV_{subjects.BUCKET_BATCHES}")
    while (await client.post("/v1/files", files={"file": ("a", b"a")}, data={"purpose": "evals"})).is_error:
        pass
    assert len((await client.get("/v1/files")).json()["data"]) == 1
