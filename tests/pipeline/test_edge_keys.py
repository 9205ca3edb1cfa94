"""API keys from the bucket: a new one works at once, a revoked one stops at once, and NATS may go away."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
from nats.js.kv import KeyValue

from baton_contracts.subjects import BUCKET_KEYS
from baton_edge_api.keys import key_hash
from tests.support.edge_process import QUESTION, RunningEdge, running_edge
from tests.support.restartable_nats import restartable_nats_server

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


async def bucket_of(edge: RunningEdge) -> KeyValue:
    """The bucket as `baton keys` sees it; the edge has made it."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await edge.relay.bus.jetstream.key_value(BUCKET_KEYS)
            except Exception:
                await asyncio.sleep(0.01)


async def status(client: httpx.AsyncClient, wanted: int) -> httpx.Response:
    """Asks until the answer has the wanted status; watches deliver at once, but not before they deliver."""
    async with asyncio.timeout(10):
        while True:
            response = await client.get("/v1/models", headers={"authorization": f"Bearer {KEY}"})
            if response.status_code == wanted:
                return response
            await asyncio.sleep(0.005)


async def test_keys_are_followed_as_they_come_and_go(nats_url: str) -> None:
    async with running_edge(nats_url) as edge, httpx.AsyncClient(base_url=edge.url) as client:
        bucket = await bucket_of(edge)
        refused = await status(client, 401)
        assert refused.json()["error"]["code"] == "invalid_api_key"
        assert refused.headers["www-authenticate"].startswith("Bearer")
        await bucket.put(key_hash(KEY), entry())
        await status(client, 200)
        answer = await client.post(
            "/v1/chat/completions", json=QUESTION, headers={"authorization": f"Bearer {KEY}"}
        )
        assert answer.status_code == 200
        tenant = edge.relay.turns[-1].handoff.envelope.tenant
        assert (tenant.tenant_id, tenant.team, tenant.key_id) == ("acme", "ops", "k1")
        await bucket.put(key_hash(KEY), entry(revoked=True))
        assert "revoked" in (await status(client, 401)).json()["error"]["message"]
        await bucket.put(key_hash(KEY), entry())
        await status(client, 200)
        await bucket.delete(key_hash(KEY))
        await status(client, 401)


async def test_keys_hold_while_nats_is_away_and_are_read_anew_when_it_is_back(tmp_path: Path) -> None:
    with restartable_nats_server(tmp_path) as server:
        async with running_edge(server.url) as edge, httpx.AsyncClient(base_url=edge.url) as client:
            bucket = await bucket_of(edge)
            await bucket.put(key_hash(KEY), entry())
            await status(client, 200)
            server.stop()
            while edge.bus.connected:
                await asyncio.sleep(0.005)
            answer = await client.post(
                "/v1/chat/completions", json=QUESTION, headers={"authorization": f"Bearer {KEY}"}
            )
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "bus_unavailable"
            assert (await client.get("/readyz")).json()["missing"] == ["bus"]
            await status(client, 200)
            server.start()
            while not (edge.bus.connected and edge.relay.bus.connected):
                await asyncio.sleep(0.005)
            await bucket.put(key_hash(KEY), entry(revoked=True))
            await status(client, 401)


async def test_another_edge_that_made_the_bucket_first_is_no_trouble(nats_url: str) -> None:
    async with running_edge(nats_url) as first:
        await bucket_of(first)
    async with running_edge(nats_url) as second, httpx.AsyncClient(base_url=second.url) as client:
        await status(client, 401)
