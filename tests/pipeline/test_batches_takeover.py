"""Two edges as processes, each with its own rights on NATS alone: the one that runs a batch is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from baton_contracts import subjects
from baton_edge_api.batches.store import OfflineStore
from tests.support.batch_files import MODEL, beats, begun, counted, jsonl, line, reached, results
from tests.support.edge_process import KEY, FakeRelay, Turn, hello
from tests.support.ports import free_port
from tests.support.restricted_nats import restricted_nats
from tests.support.service_process import ServiceProcess, running_service

RESPONSES = "/v1/responses"


def client_of(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        headers={"authorization": f"Bearer {KEY}"},
        trust_env=False,
        timeout=20,
    )


def _of_responses(number: int) -> dict[str, object]:
    body = {"model": MODEL, "input": f"question {number}"}
    return {"custom_id": f"line-{number}", "method": "POST", "url": RESPONSES, "body": body}


async def serves(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if (await client.get("/healthz")).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0)


async def test_a_killed_edge_is_followed_by_the_other_one(tmp_path: Path) -> None:
    async def by_its_text(turn: Turn) -> None:
        if turn.handoff.chat.messages[0].text == "question 1":
            await turn.prologue()
            await turn.cancelled.wait()
        else:
            await hello(turn)

    with restricted_nats(tmp_path) as nats:
        operator = await nats.connect()
        await operator.jetstream.add_stream(name=subjects.STREAM_AFTER, subjects=[subjects.AFTER_ALL])
        relay = FakeRelay(await nats.connect(), by_its_text)
        await relay.start()
        beating = asyncio.create_task(beats(operator, {"max_running": 16}))
        store = OfflineStore(operator, 1 << 30)
        ports = (free_port(), free_port())
        rights = nats.environment("edge_api") | {"BATON_DEV_KEY": KEY}
        async with (
            running_service("edge_api", rights | {"BATON_PORT": str(ports[0])}) as first,
            running_service("edge_api", rights | {"BATON_PORT": str(ports[1])}) as second,
            client_of(ports[0]) as asking_first,
            client_of(ports[1]) as asking_second,
        ):
            await asyncio.gather(serves(asking_first), serves(asking_second))
            batch = await begun(asking_first, jsonl(*(line(f"line-{n}", f"question {n}") for n in range(3))))
            responses = await begun(asking_first, jsonl(*map(_of_responses, range(3))), RESPONSES)
            for each in (batch, responses):
                await counted(asking_second, each["id"], 2)
            leader, other = await _roles(first, second)
            assert (await store.leader())[0].startswith("edge_api-")
            await leader.kill()
            relay.script = hello
            client = asking_first if other is first else asking_second
            for each in (batch, responses):
                over = await reached(client, each["id"], "completed")
                assert over["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
                found = await results(client, over["output_file_id"])
                assert found.keys() == {"line-0", "line-1", "line-2"}
            await other.logged("runs batches now, after edge_api-")
            asked = sorted(turn.handoff.chat.messages[0].text for turn in relay.turns)
            assert asked == sorted(["question 0", "question 1", "question 1", "question 2"] * 2)
            assert not [text for text in other.lines if "ermission" in text or "ERROR" in text]
            assert await other.terminate() == 0
        beating.cancel()
        await relay.stop()
        await operator.close()


async def _roles(first: ServiceProcess, second: ServiceProcess) -> tuple[ServiceProcess, ServiceProcess]:
    """The one that runs batches, and the other one."""
    told = [asyncio.create_task(edge.logged("runs batches now")) for edge in (first, second)]
    await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
    leads = first if told[0].done() else second
    for task in told:
        task.cancel()
    return (first, second) if leads is first else (second, first)
