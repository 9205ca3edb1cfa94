"""A gateway killed before its rows are stored, and no engine worker to stand in for it: the edge does."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from baton_common.bus import BusMessage
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.records import UsageRecord
from baton_edge_api import unbooked
from baton_edge_api.server import listen
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.wiring import wire
from tests.support.fake_provider import Turn, fake_provider
from tests.support.plain_gateway import KEY, catalog
from tests.support.restricted_nats import restricted_nats
from tests.support.service_process import running_service
from tests.support.waiting import eventually


async def words(turn: Turn) -> None:
    await turn.whole("0 1 2 ")


async def test_what_it_had_answered_from_elsewhere_and_from_its_cache_is_booked_by_the_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unbooked, "OTHERS_SECONDS", 0.0)
    monkeypatch.setattr(unbooked, "FIRST_PAUSE_SECONDS", 0.2)
    edge = EdgeSettings.model_validate({"port": 0, "dev_key": KEY, "plain_gateway": True, "home": tmp_path})
    sock = listen(edge)
    client = httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{sock.getsockname()[1]}",
        headers={"authorization": f"Bearer {KEY}"},
        timeout=30,
        trust_env=False,
    )
    body = {"model": "far", "messages": [{"role": "user", "content": "Hello?"}], "temperature": 0}
    home = {"BATON_HOME": str(tmp_path)}
    stand_ins: list[UsageRecord] = []

    def on_row(message: BusMessage) -> None:
        if (record := UsageRecord.decode(message.payload)).stand_in:
            stand_ins.append(record)

    with restricted_nats(tmp_path / "nats") as nats:
        bus, operator = await nats.connect("edge_api"), await nats.connect()
        await operator.subscribe(f"{subjects.ROOT}.after.usage.*", on_row)
        node = Node(bus, "edge_api")
        async with client, fake_provider(words) as provider:
            (tmp_path / "catalog.toml").write_text(catalog(("far", provider)))
            await node.start()
            async with wire(edge, sock)(node, bus):
                await node.become_ready()
                async with running_service("llm_gateway", nats.environment("llm_gateway") | home) as gateway:
                    answers = [await client.post("/v1/chat/completions", json=body) for _ in range(2)]
                    await gateway.kill()  # it tries to store two rows, but the store is not there yet
                async with running_service("after_answer", nats.environment("after_answer") | home):
                    await eventually(lambda: len(stand_ins) == 2, seconds=30)
                    ids = [answer.headers["x-request-id"] for answer in answers]
                    found = [await client.get("/v1/usage", params={"request_id": each}) for each in ids]
                await node.drain(1)
            await node.stop()
        await bus.close()
        await operator.close()
    rows = [each.json()["data"][0] for each in found]
    assert [answer.headers["x-baton-cache"] for answer in answers] == ["none", "exact"]
    told = [(row["outcome"], row["replica"], row["usage"]["completion_tokens"]) for row in rows]
    assert told == [("finished", "far/0", 4), ("cache_hit", "cache", 4)]
