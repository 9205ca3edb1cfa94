"""API keys from the bucket: a new one works at once, a revoked one stops at once, and NATS may go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from nats.js.kv import KeyValue

from baton_contracts.keys import key_hash
from baton_contracts.subjects import BUCKET_KEYS
from baton_edge_api.keys import KeyRing
from tests.support.edge_process import QUESTION, RunningEdge, running_edge
from tests.support.restartable_nats import Connections, restartable_nats_server

KEY = "sk-of-the-bucket"


def entry(revoked: bool = False, tenant: str = "acme") -> bytes:
    value = {
        "key_id": "k1",
        "tenant_id": tenant,
        "team": "ops",
        "name": "n",
        "created_at": 1.0,
        "revoked": revoked,
    }
    return json.dumps(value).encode()


@pytest.fixture
def ring_changed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set at each change of the edge's keys in memory."""
    changed = asyncio.Event()

    def noting(change: Callable[..., None]) -> Callable[..., None]:
        def changing(*arguments: Any) -> None:
            change(*arguments)
            changed.set()

        return changing

    for change in (KeyRing.put, KeyRing.remove, KeyRing.replace):
        monkeypatch.setattr(KeyRing, change.__name__, noting(change))
    return changed


async def bucket_of(edge: RunningEdge) -> KeyValue:
    """The bucket as `baton keys` sees it; the edge has made it before it was ready."""
    return await edge.relay.bus.jetstream.key_value(BUCKET_KEYS)


async def status(client: httpx.AsyncClient, wanted: int, changed: asyncio.Event) -> httpx.Response:
    """Asks at each change of the keys until the answer has the wanted status."""
    async with asyncio.timeout(10):
        while True:
            changed.clear()
            response = await client.get("/v1/models", headers={"authorization": f"Bearer {KEY}"})
            if response.status_code == wanted:
                return response
            await changed.wait()


async def test_keys_are_followed_as_they_come_and_go(nats_url: str, ring_changed: asyncio.Event) -> None:
    async with running_edge(nats_url) as edge, httpx.AsyncClient(base_url=edge.url) as client:
        bucket = await bucket_of(edge)
        refused = await status(client, 401, ring_changed)
        assert refused.json()["error"]["code"] == "invalid_api_key"
        assert refused.headers["www-authenticate"].startswith("Bearer")
        await bucket.put(key_hash(KEY), entry())
        await status(client, 200, ring_changed)
        answer = await client.post(
            "/v1/chat/completions", json=QUESTION, headers={"authorization": f"Bearer {KEY}"}
        )
        assert answer.status_code == 200
        tenant = edge.relay.turns[-1].handoff.envelope.tenant
        assert (tenant.tenant_id, tenant.team, tenant.key_id) == ("acme", "ops", "k1")
        await bucket.put(key_hash(KEY), entry(revoked=True))
        assert "revoked" in (await status(client, 401, ring_changed)).json()["error"]["message"]
        await bucket.put(key_hash(KEY), entry())
        await status(client, 200, ring_changed)
        await bucket.delete(key_hash(KEY))
        await status(client, 401, ring_changed)


async def test_keys_hold_while_nats_is_away_and_are_read_anew_when_it_is_back(
    tmp_path: Path, ring_changed: asyncio.Event
) -> None:
    with restartable_nats_server(tmp_path) as server:
        async with running_edge(server.url) as edge, httpx.AsyncClient(base_url=edge.url) as client:
            bucket = await bucket_of(edge)
            await bucket.put(key_hash(KEY), entry())
            await status(client, 200, ring_changed)
            connections = Connections(edge.bus, edge.relay.bus)
            server.stop()
            await connections.lost()
            answer = await client.post(
                "/v1/chat/completions", json=QUESTION, headers={"authorization": f"Bearer {KEY}"}
            )
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "bus_unavailable"
            assert (await client.get("/readyz")).json()["missing"] == ["bus"]
            await status(client, 200, ring_changed)
            server.start()
            await connections.found()
            await bucket.put(key_hash(KEY), entry(revoked=True))
            await status(client, 401, ring_changed)


async def test_another_edge_that_made_the_bucket_first_is_no_trouble(
    nats_url: str, ring_changed: asyncio.Event
) -> None:
    async with running_edge(nats_url) as first:
        await bucket_of(first)
    async with running_edge(nats_url) as second, httpx.AsyncClient(base_url=second.url) as client:
        await status(client, 401, ring_changed)
