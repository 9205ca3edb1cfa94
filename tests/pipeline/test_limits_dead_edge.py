"""kill -9 of an edge with requests under way: another one settles them, from the ledger."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from baton_contracts import subjects
from baton_contracts.frames import Usage
from baton_contracts.limits import Budget, LimitRule, model_party
from baton_contracts.records import UsageRecord
from baton_edge_api.limits import left_behind
from tests.support.books import running_books
from tests.support.edge_process import QUESTION, Turn
from tests.support.limited_edges import CHAT, PROMPT_TOKENS, Held, LimitedEdges, limited_edges
from tests.support.nats_server import running_nats_server
from tests.support.ports import free_port
from tests.support.service_process import ServiceProcess, running_service

MODEL = "smollm2-135m"
RULE = LimitRule(tokens_per_minute=10_000, concurrent=2, budget=Budget(picos=10**12, period="total"))


async def book(limited: LimitedEdges, turn: Turn) -> None:
    """What the gateway stores of a request whose edge is gone."""
    envelope = turn.handoff.envelope
    row = UsageRecord(
        request_id=envelope.request_id,
        run_id=envelope.run_id,
        attempt=1,
        tenant=envelope.tenant,
        model=MODEL,
        replica="engine_worker-1",
        usage=Usage(prompt_tokens=11, completion_tokens=4),
        outcome="cancelled",
        cost_picos=777,
        started_at=time.time() - 1,
        ended_at=time.time(),
    )
    await limited.bus.jetstream.publish(subjects.after("usage", envelope.request_id), row.encode())


async def test_what_a_killed_edge_held_is_settled_by_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two requests one has reached an engine: its row is what they came to."""
    monkeypatch.setattr(left_behind, "REST_SECONDS", 0.2)
    monkeypatch.setattr(left_behind, "_TURN_SECONDS", 0.0)
    port = free_port()
    with running_nats_server(tmp_path / "nats") as nats_url:
        environment = {"BATON_NATS_URL": nats_url, "BATON_PORT": str(port)}
        async with (
            running_books(nats_url, tmp_path),
            limited_edges(nats_url, RULE, Held(), rules={model_party(MODEL): RULE}) as limited,
            running_service("edge_api", environment) as doomed,
        ):
            turns = await _two_under_way(limited, port, doomed)
            await book(limited, turns[0])
            for party in ("", model_party(MODEL)):
                async with asyncio.timeout(20):
                    while (state := await limited.use(party)).held_picos:
                        continue
                assert (state.seats, state.tokens, state.spent_picos) == (0, 15, 777)


async def _two_under_way(limited: LimitedEdges, port: int, doomed: ServiceProcess) -> list[Turn]:
    """Then the edge is killed."""
    relay, headers = limited.first.edge.relay, dict(limited.first.client.headers)
    base_url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=20) as client:
        body = QUESTION | {"model": MODEL, "stream": True, "max_tokens": 50}
        asking = [asyncio.create_task(client.post(CHAT, json=body)) for _ in range(2)]
        await relay.took(2)
        assert await limited.first.refusal(model=MODEL, max_tokens=1) == (429, "rate_limit_exceeded")
        state = await limited.use()
        assert (state.seats, state.tokens) == (2, 2 * (PROMPT_TOKENS + 50))
        assert state.held_picos > 0
        await doomed.kill()
        broken = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(each, httpx.TransportError) for each in broken)
    return relay.turns
