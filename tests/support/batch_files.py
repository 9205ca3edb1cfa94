"""Files of batches, and replicas whose heartbeats a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.heartbeats import ReplicaHeartbeat
from tests.support.edge_process import RunningEdge
from tests.support.nats_server import running_nats_server

MODEL = "smollm2-135m"
CHAT = "/v1/chat/completions"


def line(custom_id: str, text: str = "Hello?", *, url: str = CHAT, **body: Any) -> dict[str, Any]:
    content = {"model": MODEL, "messages": [{"role": "user", "content": text}]} | body
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": content}


def jsonl(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in lines)


async def upload(client: httpx.AsyncClient, content: bytes, purpose: str = "batch") -> httpx.Response:
    return await client.post("/v1/files", files={"file": ("lines.jsonl", content)}, data={"purpose": purpose})


async def begun(
    client: httpx.AsyncClient, content: bytes, endpoint: str = CHAT, **fields: Any
) -> dict[str, Any]:
    file = await upload(client, content)
    assert file.status_code == 200, file.text
    body = {"input_file_id": file.json()["id"], "endpoint": endpoint, "completion_window": "24h"} | fields
    batch = await client.post("/v1/batches", json=body)
    assert batch.status_code == 200, batch.text
    return batch.json()


async def reached(client: httpx.AsyncClient, batch_id: str, *states: str, seconds: float = 15) -> Any:
    """The batch, once it is in one of these states."""
    batch: Any = None
    async with asyncio.timeout(seconds):
        while batch is None or batch["status"] not in states:
            batch = (await client.get(f"/v1/batches/{batch_id}")).json()
    return batch


async def results(client: httpx.AsyncClient, file_id: str) -> dict[str, Any]:
    """By custom_id."""
    content = await client.get(f"/v1/files/{file_id}/content")
    assert content.status_code == 200, content.text
    found = [json.loads(text) for text in content.text.splitlines()]
    return {item["custom_id"]: item for item in found}


async def counted(client: httpx.AsyncClient, batch_id: str, completed: int) -> None:
    """Returns when the batch's record tells of so many lines."""
    async with asyncio.timeout(15):
        while (await client.get(f"/v1/batches/{batch_id}")).json()["request_counts"]["completed"] < completed:
            pass


async def beats(bus: NatsBus, figures: dict[str, Any]) -> None:
    """For ever: what a replica with these figures says of itself."""
    while True:
        beat = ReplicaHeartbeat(replica="engine_worker-1", model=MODEL, state="ready", sent_at=0.0, **figures)
        await bus.publish(subjects.replica(MODEL, "engine_worker-1"), beat.encode())
        await asyncio.sleep(0.1)  # the pace of a heartbeat, not a wait for anything


@pytest.fixture
def nats_url(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own: no edge of another test runs its batches."""
    with running_nats_server(tmp_path / "nats") as url:
        yield url


@asynccontextmanager
async def beating(edge: RunningEdge, **figures: Any) -> AsyncGenerator[dict[str, Any], None]:
    """A replica whose figures a test may change as it goes."""
    told: dict[str, Any] = {"max_running": 16} | figures
    task = asyncio.create_task(beats(edge.relay.bus, told))
    try:
        yield told
    finally:
        task.cancel()
