"""Responses in the background: an edge with real books, what its clients ask, and entries that a lost edge
leaves behind. Fixtures of the tests that import them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from baton_edge_api.background.records import BackgroundRecord
from tests.support.books import running_books
from tests.support.edge_process import RunningEdge, Script, Turn, running_edge
from tests.support.nats_server import running_nats_server
from tests.support.openai_responses import judged

ASKED: dict[str, Any] = {"model": "smollm2-135m", "input": "Hello?", "background": True}


def client_of(edge: RunningEdge) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20)


@pytest.fixture(scope="module")
def own_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_nats_server(tmp_path_factory.mktemp("nats")) as url:
        yield url


@pytest.fixture
async def books(own_nats: str, tmp_path: Path) -> AsyncIterator[None]:
    async with running_books(own_nats, tmp_path):
        yield


@pytest.fixture
async def edge(own_nats: str, books: None) -> AsyncIterator[RunningEdge]:
    async with running_edge(own_nats) as running:
        yield running


@pytest.fixture
async def http(edge: RunningEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(edge) as client:
        yield client


def told_in_two(may_go_on: asyncio.Event) -> Script:
    """An answer whose second half waits."""

    async def script(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Hello")
        await may_go_on.wait()
        await turn.data(" you!")
        await turn.end()

    return script


async def asked_until(
    http: httpx.AsyncClient, response_id: str, is_so: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Asks for the response again and again, as its clients do."""
    async with asyncio.timeout(15):
        while True:
            answer = await http.get(f"/v1/responses/{response_id}")
            assert answer.status_code == 200, answer.text
            if is_so(found := judged(answer.json())):
                return found


async def ended(http: httpx.AsyncClient, response_id: str) -> dict[str, Any]:
    return await asked_until(
        http, response_id, lambda found: found["status"] not in ("queued", "in_progress")
    )


async def left_behind(edge: RunningEdge, like: dict[str, Any], **changes: Any) -> BackgroundRecord:
    """An entry whose edge nobody hears."""
    fields: dict[str, Any] = {
        "key": secrets.token_hex(20),
        "tenant": {"tenant_id": "default", "team": "default", "key_id": "dev"},
        "model": "smollm2-135m",
        "ask": json.dumps({"model": "smollm2-135m", "input": "Hello?", "stream": True, "background": True}),
        "input": "[]",
        "body": json.dumps(like | {"background": True}),
        "created_at": like["created_at"],
        "owner": "edge_api-dead",
    }
    record = BackgroundRecord.model_validate(fields | changes)
    bucket = await edge.bus.jetstream.key_value("baton_background")
    await bucket.put(record.entry, record.encode())
    return record
