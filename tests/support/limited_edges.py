"""Edges with a key that has limits: real HTTP, a real bucket, a scripted relay behind each."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from baton_common import node as node_module
from baton_common.buckets import open_bucket
from baton_common.clock import Clock
from baton_common.nats_bus import NatsBus
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import AccountState, LimitRule, key_party, rule_entry, use_entry
from baton_contracts.subjects import BUCKET_KEYS, BUCKET_LIMITS
from tests.support.edge_process import QUESTION, RunningEdge, Script, Turn, hello, running_edge

PROMPT_TOKENS = 10
"""What the prompt of QUESTION is counted as: without an engine by its characters, 6 / 3 + 8."""
CHAT = "/v1/chat/completions"


@dataclass
class LimitedEdge:
    edge: RunningEdge
    client: httpx.AsyncClient

    async def ask(self, **fields: Any) -> httpx.Response:
        return await self.client.post(CHAT, json=QUESTION | fields)

    async def refusal(self, **fields: Any) -> tuple[int, str]:
        response = await self.ask(**fields)
        return response.status_code, response.json()["error"]["code"]


@dataclass
class LimitedEdges:
    bus: NatsBus
    key_id: str
    edges: list[LimitedEdge]

    @property
    def first(self) -> LimitedEdge:
        return self.edges[0]

    @property
    def num_turns(self) -> int:
        """Requests that came through to the relay, whichever edge they came from."""
        return sum(len(each.edge.relay.turns) for each in self.edges)

    async def use(self, party: str = "") -> AccountState:
        """With all in it that these edges know by now."""
        for each in self.edges:
            assert await each.edge.limits.settled(5)
        return await self.use_as_stored(party)

    async def use_as_stored(self, party: str = "") -> AccountState:
        bucket = await open_bucket(self.bus.jetstream, BUCKET_LIMITS)
        entry = await bucket.get(use_entry(party or key_party(self.key_id)))
        return AccountState.decode(entry.value or b"")


async def put_rule(bus: NatsBus, party: str, rule: LimitRule) -> None:
    bucket = await open_bucket(bus.jetstream, BUCKET_LIMITS)
    await bucket.put(rule_entry(party), rule.encode())


@asynccontextmanager
async def limited_edges(
    nats_url: str,
    rule: LimitRule,
    script: Script = hello,
    *,
    count: int = 1,
    rules: dict[str, LimitRule] | None = None,
    key: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[LimitedEdges, None]:
    """`rules` are those of other parties, `key` more of the key's entry."""
    secret, key_id = f"sk-limited-{secrets.token_hex(8)}", f"key_{secrets.token_hex(6)}"
    bus = await NatsBus.connect(nats_url, name="operator")
    values: dict[str, Any] = {"key_id": key_id, "tenant_id": f"tenant-{key_id}", "limits": rule}
    keys = await open_bucket(bus.jetstream, BUCKET_KEYS)
    await keys.put(key_hash(secret), KeyEntry(**(values | (key or {}))).encode())
    await open_bucket(bus.jetstream, BUCKET_LIMITS)
    for party, each in (rules or {}).items():
        await put_rule(bus, party, each)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        edges: list[LimitedEdge] = []
        for _ in range(count):
            edge = await stack.enter_async_context(running_edge(nats_url, script, **settings))
            client = httpx.AsyncClient(
                base_url=edge.url,
                headers={"authorization": f"Bearer {secret}"},
                timeout=20,
                limits=httpx.Limits(max_connections=None),
            )
            stack.push_async_callback(client.aclose)
            edges.append(LimitedEdge(edge, client))
        try:
            yield LimitedEdges(bus, key_id, edges)
        finally:
            limits = await open_bucket(bus.jetstream, BUCKET_LIMITS)
            for party in rules or {}:
                await limits.delete(rule_entry(party))


class Held:
    """A script that answers when it is told to."""

    def __init__(self, **usage: int) -> None:
        self.go_on = asyncio.Event()
        self._usage = usage

    async def __call__(self, turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Hello.")
        waits = [asyncio.create_task(event.wait()) for event in (self.go_on, turn.cancelled)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await turn.end("cancelled" if turn.cancelled.is_set() else "stop", **self._usage)


class Time:
    """Wall time of all processes in this test, to be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def wall_time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(node_module, "Clock", lambda: Clock(wall=made.now))
    return made
