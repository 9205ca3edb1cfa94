"""A gateway killed, or frozen, before its rows are stored, and no engine worker to stand in for it: the edge
does, and what a gateway that thaws writes takes its place."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

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
from tests.support.fake_provider import Script, Turn, fake_provider
from tests.support.plain_gateway import KEY, catalog
from tests.support.restricted_nats import RestrictedNats, restricted_nats
from tests.support.service_process import ServiceProcess, running_service
from tests.support.waiting import eventually

BODY = {"model": "far", "messages": [{"role": "user", "content": "Hello?"}], "temperature": 0}


class Stage:
    """An edge in this process; gateway and books are processes that a test starts and ends."""

    def __init__(self, nats: RestrictedNats, home: Path, client: httpx.AsyncClient) -> None:
        self._nats = nats
        self._home = home
        self._client = client
        self.rows: list[UsageRecord] = []

    @property
    def stand_ins(self) -> list[UsageRecord]:
        return [row for row in self.rows if row.stand_in]

    def on_row(self, message: BusMessage) -> None:
        self.rows.append(UsageRecord.decode(message.payload))

    def running(self, service: str) -> AbstractAsyncContextManager[ServiceProcess]:
        return running_service(service, self._nats.environment(service) | {"BATON_HOME": str(self._home)})

    async def ask(self) -> httpx.Response:
        return await self._client.post("/v1/chat/completions", json=BODY)

    async def booked(self, answer: httpx.Response) -> list[dict[str, Any]]:
        query = {"request_id": answer.headers["x-request-id"]}
        return (await self._client.get("/v1/usage", params=query)).json()["data"]


@asynccontextmanager
async def stage(home: Path, script: Script) -> AsyncGenerator[Stage]:
    edge = EdgeSettings.model_validate({"port": 0, "dev_key": KEY, "plain_gateway": True, "home": home})
    sock = listen(edge)
    client = httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{sock.getsockname()[1]}",
        headers={"authorization": f"Bearer {KEY}"},
        timeout=30,
        trust_env=False,
    )
    with restricted_nats(home / "nats") as nats:
        bus, operator = await nats.connect("edge_api"), await nats.connect()
        node = Node(bus, "edge_api")
        async with client, fake_provider(script) as provider:
            (home / "catalog.toml").write_text(catalog(("far", provider)))
            standing = Stage(nats, home, client)
            await operator.subscribe(f"{subjects.ROOT}.after.usage.*", standing.on_row)
            await node.start()
            async with wire(edge, sock)(node, bus):
                await node.become_ready()
                yield standing
                await node.drain(1)
            await node.stop()
        await bus.close()
        await operator.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unbooked, "OTHERS_SECONDS", 0.0)
    monkeypatch.setattr(unbooked, "FIRST_PAUSE_SECONDS", 0.2)


async def words(turn: Turn) -> None:
    await turn.whole("0 1 2 ")


async def test_what_it_had_answered_from_elsewhere_and_from_its_cache_is_booked_by_the_edge(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, words) as here:
        async with here.running("llm_gateway") as gateway:
            answers = [await here.ask() for _ in range(2)]
            await gateway.kill()  # it tries to store two rows, but the store is not there yet
        async with here.running("after_answer"):
            await eventually(lambda: len(here.stand_ins) == 2, seconds=30)
            rows = [row for answer in answers for row in await here.booked(answer)]
    assert [answer.headers["x-baton-cache"] for answer in answers] == ["none", "exact"]
    told = [(row["outcome"], row["replica"], row["usage"]["completion_tokens"]) for row in rows]
    assert told == [("finished", "far/0", 4), ("cache_hit", "cache", 4)]


async def test_one_that_thaws_takes_back_what_the_edge_had_booked_of_a_second_attempt(tmp_path: Path) -> None:
    num_asked = 0

    async def fail_once(turn: Turn) -> None:
        nonlocal num_asked
        num_asked += 1
        if num_asked == 1:
            await turn.refuse(500)
        else:
            await turn.whole("0 1 2 ")

    async with stage(tmp_path, fail_once) as here, here.running("llm_gateway") as gateway:
        answer = await here.ask()
        gateway.process.send_signal(signal.SIGSTOP)  # before its row is stored: there is no store yet
        async with here.running("after_answer"):
            await eventually(lambda: len(here.stand_ins) == 1, seconds=30)
            (by_edge,) = await here.booked(answer)
            gateway.process.send_signal(signal.SIGCONT)
            await eventually(lambda: any(not row.stand_in for row in here.rows), seconds=30)
            rows = await here.booked(answer)
    assert (answer.status_code, num_asked) == (200, 2)
    assert by_edge["usage"]["completion_tokens"] == 4
    assert [(row["attempt"], row["usage"]["completion_tokens"]) for row in rows] == [(2, 4)]
    assert [row.attempt for row in here.rows if not row.stand_in] == [2]
