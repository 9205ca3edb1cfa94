"""Every route but the chat, against services that answer as scripted, and against none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from baton_common.bus import BusMessage
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.base import WireModel
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Usage
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.identifiers import request_ids_of
from baton_contracts.openai_answers import DocumentAnswer, ModelCard, ModelList
from baton_contracts.queries import (
    BooksQuery,
    BooksReply,
    ConsoleQuery,
    ConsoleReply,
    IngestQuery,
    IngestReply,
    StoredTurn,
)
from baton_contracts.records import StoredMessage, UsageRecord
from tests.support.edge_process import QUESTION, RunningEdge, running_edge

RID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
async def edge(nats_url: str) -> AsyncIterator[RunningEdge]:
    async with running_edge(nats_url) as running:
        yield running


@pytest.fixture
async def client(edge: RunningEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20) as opened:
        yield opened


async def answering(edge: RunningEdge, subject: str, query: type[WireModel], reply: WireModel) -> list[Any]:
    """Answers every question on `subject` with `reply`; returns the list that the questions go to."""
    asked: list[Any] = []

    def on_message(message: BusMessage) -> None:
        asked.append(query.decode(message.payload))
        spawn(edge.relay.bus.publish(message.reply, reply.encode()))

    await edge.relay.bus.subscribe(subject, on_message)
    return asked


def error_of(response: httpx.Response) -> dict[str, Any]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(response.headers["x-request-id"]) == 32
    return error


async def test_health_needs_no_key_and_unknown_paths_are_404(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz", headers={"authorization": ""})).json() == {"status": "alive"}
    for path in (
        "/nope",
        "/v1",
        "/v1/completions/",
        "/v1/models/",
        "/..%2f..%2fetc/passwd",
        "/v1/chat/completions/x",
    ):
        response = await client.get(path)
        assert response.status_code == 404, path
        assert error_of(response)["code"] in ("not_found", "model_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/v1/documents", "DELETE, POST"),
        ("DELETE", "/healthz", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_405_and_says_which_are_right(
    client: httpx.AsyncClient, method: str, path: str, allow: str
) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allow)
    assert error_of(response)["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/x"),
        ("GET", "/v1/traces"),
        ("GET", f"/v1/traces/{RID}"),
        ("GET", "/v1/conversations/c"),
        ("GET", f"/v1/usage?request_id={RID}"),
        ("POST", "/v1/documents"),
        ("DELETE", "/v1/documents?source=x"),
        ("POST", "/v1/chat/completions"),
    ],
)
async def test_all_of_v1_needs_a_key(client: httpx.AsyncClient, method: str, path: str) -> None:
    response = await client.request(method, path, headers={"authorization": "Bearer wrong"})
    assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_models_follow_the_heartbeats(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/models")).json() == {"object": "list", "data": []}
    beat = ReplicaHeartbeat(
        replica="engine_worker-1",
        model="smollm2-135m",
        state="ready",
        sent_at=0.0,
        num_running=2,
        context_length=8192,
    )
    await edge.relay.bus.publish(subjects.replica("smollm2-135m", "engine_worker-1"), beat.encode())
    while not (listed := ModelList.model_validate((await client.get("/v1/models")).json())).data:
        pass
    assert [card.id for card in listed.data] == ["smollm2-135m", "auto", "default"]
    assert listed.data[0].max_model_len == 8192
    one = ModelCard.model_validate((await client.get("/v1/models/smollm2-135m")).json())
    assert one == listed.data[0]
    missing = await client.get("/v1/models/gpt-9")
    assert (missing.status_code, error_of(missing)["code"]) == (404, "model_not_found")
    text = (await client.get("/metrics")).text
    assert 'vllm:num_requests_running{model_name="smollm2-135m",replica="engine_worker-1"} 2.0' in text


async def test_metrics_count_answers_by_route_and_status(client: httpx.AsyncClient) -> None:
    await client.post("/v1/chat/completions", json=QUESTION)
    await client.post("/v1/chat/completions", json=QUESTION | {"temperature": 9})
    await client.get("/v1/models/made-up-by-the-client")
    await client.get("/made-up-too")
    text = (await client.get("/metrics")).text
    assert 'baton:http_requests_total{route="/v1/chat/completions",status="200"} 1.0' in text
    assert 'baton:http_requests_total{route="/v1/chat/completions",status="400"} 1.0' in text
    assert 'baton:http_requests_total{route="/v1/models/{name:path}",status="404"} 1.0' in text
    assert 'baton:http_requests_total{route="other",status="404"} 1.0' in text
    assert 'baton:errors_total{code="invalid_value",stop="edge_api"} 1.0' in text
    assert 'vllm:generation_tokens_total{model_name="smollm2-135m"} 3.0' in text
    assert 'vllm:time_to_first_token_seconds_count{model_name="smollm2-135m"} 1.0' in text
    assert "baton:requests_in_flight 0.0" in text
    assert "made-up" not in text


async def test_a_trace_comes_from_the_console_with_the_tenant(
    edge: RunningEdge, client: httpx.AsyncClient
) -> None:
    asked = await answering(
        edge, subjects.CONSOLE_ALL, ConsoleQuery, ConsoleReply(body='{"request_id": "x"}')
    )
    response = await client.get(f"/v1/traces/{RID.upper()}")
    assert response.json() == {"request_id": "x"}
    assert (await client.get("/v1/traces?limit=5")).status_code == 200
    assert (await client.get("/v1/traces?status=error&since=2026-11-29&x=y&page=7")).status_code == 200
    assert [query.path for query in asked] == [
        f"/v1/traces/{RID}",
        "/v1/traces?limit=5",
        "/v1/traces?status=error&since=2026-11-29&page=7",
    ]
    assert asked[0].tenant.tenant_id == "default"
    hostile = await client.get("/v1/traces/a.b.%3E")
    assert (hostile.status_code, error_of(hostile)["param"]) == (400, "id")
    assert len(asked) == 3


async def test_pages_need_no_key_and_carry_security_headers(
    edge: RunningEdge, client: httpx.AsyncClient
) -> None:
    page = ConsoleReply(media_type="text/html; charset=utf-8", body="<h1>Hi ☃</h1>")
    asked = await answering(edge, subjects.CONSOLE_ALL, ConsoleQuery, page)
    for path in ("/", "/ui/trace", "/ui/a%2e%2e/x"):
        response = await client.get(path, headers={"authorization": ""})
        assert response.text == "<h1>Hi ☃</h1>"
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
    assert [query.path for query in asked] == ["/", "/ui/trace", "/ui/a../x"]
    assert all(query.tenant is None for query in asked)
    assert (await client.get("/ui/" + "x" * 600)).status_code == 404


async def test_an_error_of_the_service_behind_is_the_answer(
    edge: RunningEdge, client: httpx.AsyncClient
) -> None:
    error = ErrorBody(code="not_found", message="No such trace.", stop="trace_console")
    await answering(edge, subjects.CONSOLE_ALL, ConsoleQuery, ConsoleReply(error=error))
    response = await client.get(f"/v1/traces/{RID}")
    assert (response.status_code, error_of(response)["message"]) == (404, "No such trace.")


async def test_a_conversation_comes_from_the_books(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    turn = StoredTurn(
        request_id=RID,
        model="m",
        asked=(StoredMessage(role="user", content="Hi"),),
        answer="Ho",
        cut_short=False,
        created_at=1.0,
    )
    asked = await answering(edge, subjects.BOOKS_ALL, BooksQuery, BooksReply(turns=(turn,)))
    body = (await client.get("/v1/conversations/trip-1")).json()
    assert (body["object"], body["id"]) == ("conversation", "trip-1")
    assert body["turns"][0]["answer"] == "Ho"
    assert asked == [BooksQuery(kind="conversation", tenant_id="default", conversation_id="trip-1")]
    hostile = await client.get("/v1/conversations/a.%3E")
    assert (hostile.status_code, error_of(hostile)["param"]) == (400, "conversation_id")


async def test_a_conversation_that_is_not_there_is_404(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    await answering(edge, subjects.BOOKS_ALL, BooksQuery, BooksReply())
    response = await client.get("/v1/conversations/none")
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")


async def test_usage_shows_the_ledger_rows(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    row = UsageRecord(
        request_id=RID,
        run_id="00000001",
        attempt=1,
        tenant={"tenant_id": "default", "key_id": "dev"},  # type: ignore[arg-type]
        model="m",
        replica="r",
        usage=Usage(prompt_tokens=4, completion_tokens=2),
        outcome="finished",
        started_at=1.0,
        ended_at=2.0,
    )
    asked = await answering(edge, subjects.BOOKS_ALL, BooksQuery, BooksReply(usage=(row,)))
    body = (await client.get(f"/v1/usage?request_id={RID}")).json()
    assert body["data"][0]["usage"] == {
        "prompt_tokens": 4,
        "cached_tokens": 0,
        "completion_tokens": 2,
        "reasoning_tokens": 0,
    }
    others = request_ids_of(RID, 128)[1:]
    assert asked == [BooksQuery(kind="usage", tenant_id="default", request_id=RID, more_request_ids=others)]
    for bad in ("", "?request_id=", "?request_id=a.b.*", "?by=model&request_id=a.b.*"):
        response = await client.get(f"/v1/usage{bad}")
        assert (response.status_code, error_of(response)["param"]) == (400, "request_id")


async def test_documents_go_in_and_out(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    asked = await answering(edge, subjects.INGEST_ALL, IngestQuery, IngestReply(chunks=3, added=2, removed=1))
    document = {"source": "guide.md", "media_type": "text/markdown", "text": "# Guide\nbody"}
    answer = DocumentAnswer.model_validate((await client.post("/v1/documents", json=document)).json())
    assert (answer.chunks, answer.added, answer.removed) == (3, 2, 1)
    gone = await client.delete("/v1/documents", params={"source": "guide.md"})
    assert gone.json() == {"object": "document.deleted", "source": "guide.md", "deleted": True, "removed": 1}
    assert (await client.delete("/v1/documents/a/b.md")).json()["source"] == "a/b.md"
    assert [(query.source, query.text) for query in asked] == [
        ("guide.md", "# Guide\nbody"),
        ("guide.md", ""),
        ("a/b.md", ""),
    ]
    assert {query.tenant_id for query in asked} == {"default"}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"text": "x"}, "missing_required_parameter", "source"),
        ({"source": "", "text": "x"}, "invalid_value", "source"),
        ({"source": "s", "text": ""}, "invalid_value", "text"),
        ({"source": "s", "text": 5}, "invalid_type", "text"),
        ({"source": "s", "text": "x", "media_type": "application/x-sh"}, "invalid_value", "media_type"),
        ([], "invalid_type", ""),
    ],
)
async def test_bad_documents_are_400(client: httpx.AsyncClient, body: Any, code: str, param: str) -> None:
    response = await client.post("/v1/documents", json=body)
    assert response.status_code == 400
    assert (error_of(response)["code"], error_of(response)["param"] or "") == (code, param)


async def test_a_missing_service_behind_a_route_is_503_by_name(client: httpx.AsyncClient) -> None:
    document = {"source": "s", "text": "x"}
    answers = {
        "trace_console": [await client.get("/"), await client.get(f"/v1/traces/{RID}")],
        "after_answer": [
            await client.get("/v1/conversations/c"),
            await client.get(f"/v1/usage?request_id={RID}"),
        ],
        "prompt_builder": [await client.post("/v1/documents", json=document)],
    }
    for service, responses in answers.items():
        for response in responses:
            assert response.status_code == 503
            assert response.headers["x-baton-stop"] == service
            assert service in error_of(response)["message"]
            assert int(response.headers["retry-after"]) >= 1


async def test_a_service_that_does_not_answer_is_503(nats_url: str) -> None:
    async with (
        running_edge(nats_url, query_timeout=0.1) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        await edge.relay.bus.subscribe(subjects.BOOKS_ALL, lambda _: None)
        response = await client.get("/v1/conversations/c")
        assert (response.status_code, error_of(response)["code"]) == (503, "stop_unresponsive")


async def test_the_document_is_served(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert "/v1/chat/completions" in document["paths"]
