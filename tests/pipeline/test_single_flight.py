"""Identical requests under way at the same time: one call, many answers; and who may leave without harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from baton_contracts import subjects
from baton_contracts.heartbeats import Lease
from baton_contracts.prompt import Sampling
from tests.support.fake_provider import Turn, fake_provider
from tests.support.plain_gateway import PlainGateway, catalog, plain_gateway
from tests.support.relay_stage import Stage
from tests.support.waiting import eventually

WANTED = "[cache]\nsingle_flight = true\n"


def waiting(may_go_on: asyncio.Event) -> Callable[[Turn], Awaitable[None]]:
    async def script(turn: Turn) -> None:
        await turn.words(2)
        await may_go_on.wait()
        await turn.delta(content="end")
        await turn.done(completion=3)

    return script


def asking(plain: PlainGateway, count: int) -> list[asyncio.Task[httpx.Response]]:
    return [asyncio.create_task(plain.ask(stream=True, temperature=0)) for _ in range(count)]


def texts(answers: list[httpx.Response]) -> list[str]:
    return ["".join(part for part in ("0 ", "1 ", "end") if part in answer.text) for answer in answers]


async def test_one_call_answers_all_and_is_billed_once(nats_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with fake_provider(waiting(go_on)) as provider:
        text = catalog(("far", provider), more=WANTED)
        async with plain_gateway(nats_url, tmp_path, text) as plain:
            tasks = asking(plain, 4)
            await plain.took(4)
            go_on.set()
            answers = list(await asyncio.gather(*tasks))
            await eventually(lambda: len(plain.rows) == 4)
    assert texts(answers) == ["0 1 end"] * 4
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    assert len(provider.asked) == 1
    assert sorted(row.outcome for row in plain.rows) == ["cache_hit"] * 3 + ["finished"]


async def test_a_leader_that_leaves_takes_nothing_from_the_others(nats_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with fake_provider(waiting(go_on)) as provider:
        text = catalog(("far", provider), more=WANTED)
        async with plain_gateway(nats_url, tmp_path, text) as plain:
            leader = asking(plain, 1)[0]
            await eventually(lambda: len(provider.asked) == 1)
            others = asking(plain, 2)
            await plain.took(3)
            leader.cancel()
            await asyncio.wait([leader])
            await plain.took(3)
            go_on.set()
            answers = list(await asyncio.gather(*others))
            await eventually(lambda: len(plain.rows) == 3)
    assert texts(answers) == ["0 1 end"] * 2
    assert len(provider.asked) == 1


async def test_when_all_have_left_the_call_ends(nats_url: str, tmp_path: Path) -> None:
    async with fake_provider(waiting(asyncio.Event())) as provider:
        text = catalog(("far", provider), more=WANTED)
        async with plain_gateway(nats_url, tmp_path, text) as plain:
            tasks = asking(plain, 3)
            await plain.took(3)
            await eventually(lambda: len(provider.asked) == 1)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            async with asyncio.timeout(2):
                await provider.asked[0].closed.wait()
    assert len(provider.asked) == 1


async def test_a_tenant_that_did_not_ask_for_it_gets_calls_of_its_own(nats_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with (
        fake_provider(waiting(go_on)) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider))) as plain,
    ):
        tasks = asking(plain, 2)
        await eventually(lambda: len(provider.asked) == 2)
        go_on.set()
        await asyncio.gather(*tasks)


async def test_what_clients_ask_of_the_cache(nats_url: str, tmp_path: Path) -> None:
    async def counting(turn: Turn) -> None:
        await turn.whole(f"answer {len(provider.asked)}")

    async with (
        fake_provider(counting) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider))) as plain,
    ):

        async def ask(**headers: str) -> tuple[str, str]:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            body = {"model": "far", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
            answer = await plain.client.post("/v1/chat/completions", json=body, headers=named)
            return answer.json()["choices"][0]["message"]["content"], answer.headers["x-baton-cache"]

        assert await ask() == ("answer 1", "none")
        assert await ask(cache_control="max-age=60") == ("answer 1", "exact")
        assert await ask(cache_control="no-store") == ("answer 2", "none")
        assert await ask() == ("answer 1", "exact")
        assert await ask(cache_control="no-cache") == ("answer 3", "none")
        assert await ask() == ("answer 3", "exact")
        assert await ask(cache_control="max-age=0") == ("answer 4", "none")
        bad = await plain.client.post(
            "/v1/chat/completions",
            json={"model": "far", "messages": [{"role": "user", "content": "Hi"}]},
            headers={"x-baton-cache-ttl": "soon"},
        )
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, "x-baton-cache-ttl")


async def test_a_follower_hears_that_its_guard_is_gone(memory_stage: Stage, tmp_path: Path) -> None:
    stage = memory_stage
    async with fake_provider(waiting(asyncio.Event())) as provider:
        (tmp_path / "catalog.toml").write_text(catalog(("far", provider), more=WANTED))
        guard, _ = await asyncio.gather(stage.guard(), stage.gateway(home=tmp_path))
        greedy = Sampling(temperature=0)
        leader, follower = [await stage.send(stage.handoff(model="far", sampling=greedy)) for _ in range(2)]
        heard = await stage.listen(follower, until=lambda so_far: so_far.text == "0 1 ")
        gone = Lease(service="output_guardrails", instance=guard.instance, state="gone")
        await guard.bus.publish(subjects.lease(guard.instance), gone.encode())
        await stage.listen(follower, into=heard)
        assert (await stage.listen(leader)).error
    assert heard.error
    assert (heard.error.code, heard.error.stop) == ("stop_lost", "output_guardrails")
    assert len(provider.asked) == 1


async def test_an_edge_that_is_gone_keeps_no_call_up(memory_stage: Stage, tmp_path: Path) -> None:
    stage = memory_stage
    async with fake_provider(waiting(asyncio.Event())) as provider:
        (tmp_path / "catalog.toml").write_text(catalog(("far", provider), more=WANTED))
        await asyncio.gather(stage.guard(), stage.gateway(home=tmp_path))
        greedy = Sampling(temperature=0)
        asked = [await stage.send(stage.handoff(model="far", sampling=greedy)) for _ in range(3)]
        for request_id in asked:
            await stage.listen(request_id, until=lambda so_far: so_far.text == "0 1 ")
        gone = Lease(service="edge_api", instance=stage.edge.instance, state="gone")
        await stage.edge.bus.publish(subjects.lease(stage.edge.instance), gone.encode())
        async with asyncio.timeout(2):
            await provider.asked[0].closed.wait()
        assert len(provider.asked) == 1
