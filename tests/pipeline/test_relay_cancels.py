"""Cancels over a real NATS server: in each state, at random moments, and from those who vanish."""

from __future__ import annotations

import asyncio
import random

import pytest

from baton_common.cancels import broadcast_cancel
from baton_contracts import subjects
from baton_contracts.frames import Cancel, CancelAck
from baton_contracts.heartbeats import Lease
from baton_llm_gateway import itinerary
from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Exchange, Running, Stage
from tests.support.scripted_answer import Script
from tests.support.waiting import eventually

ENDLESS = tuple(f"word{number} " for number in range(1000))


async def cancelled(stage: Stage, request_id: str) -> list[CancelAck]:
    """Cancels as the edge does, and waits for what the holders say."""

    cancel = Cancel(request_id=request_id, reason="client_disconnected")
    return await broadcast_cancel(stage.edge.bus, cancel, timeout=5, enough=3)


@pytest.mark.parametrize("steps", [0, 1, 7], ids=["waiting", "prefilled", "decoding"])
async def test_a_cancel_frees_the_blocks_and_is_confirmed(stage: Stage, steps: int) -> None:
    engine = FakeEngine(Script(words=ENDLESS), autoplay=False)
    (worker,) = await stage.whole(engine)

    request_id = await stage.send(stage.handoff())
    heard = await stage.listen(request_id, until=lambda heard: bool(heard.prologues))
    for _ in range(steps):
        engine.step()
    blocks = 1 if steps else 0  # seven prompt tokens and at most seven more: one block of sixteen
    acks = await cancelled(stage, request_id)
    heard = await stage.listen(request_id, into=heard)

    assert (engine.waiting, engine.running) == ([], [])
    assert {ack.instance: ack.blocks_freed for ack in acks}[worker.instance] == blocks
    assert heard.end is not None
    assert (heard.end.finish_reason, heard.end.blocks_freed) == ("cancelled", blocks)
    assert heard.end.usage.completion_tokens == steps
    assert len(heard.token_ids) == steps
    await eventually(lambda: len(stage.records) == 1)
    row = stage.records[0]
    assert (row.outcome, row.finish_reason) == ("cancelled", "cancelled")
    assert (row.usage.prompt_tokens, row.usage.completion_tokens) == (7, steps)


async def test_a_cancel_while_the_next_attempt_waits_stops_all_attempts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = asyncio.Event()

    def long_pause(failures: int) -> float:
        assert failures == 1
        waits.set()
        return 5.0

    monkeypatch.setattr(itinerary, "backoff_seconds", long_pause)
    engines = [FakeEngine(Script(error_after=0), autoplay=False) for _ in range(2)]
    await stage.whole(*engines)

    request_id = await stage.send(stage.handoff())
    await eventually(lambda: any(engine.waiting for engine in engines))
    first = next(engine for engine in engines if engine.waiting)
    second = next(engine for engine in engines if engine is not first)
    first.step()
    first.step()
    async with asyncio.timeout(20):
        await waits.wait()
    await stage.cancel(request_id)
    heard = await stage.listen(request_id)

    assert heard.end is not None or heard.error is not None
    assert len(second.submitted) == 1  # its warm-up
    assert not second.waiting


async def test_an_engine_that_says_no_last_word_is_not_waited_for_for_ever(stage: Stage) -> None:
    engine = FakeEngine(Script(words=ENDLESS), autoplay=False)
    (worker,) = await stage.whole(engine)

    request_id = await stage.send(stage.handoff())
    await eventually(lambda: bool(engine.waiting))
    engine.step()
    await stage.listen(request_id, until=lambda heard: len(heard.token_ids) == 1)
    await worker.vanish()
    await stage.cancel(request_id)
    heard = await stage.listen(request_id)

    assert heard.error is not None
    assert heard.error.code == "client_closed_request"
    assert heard.seconds < 4
    await eventually(lambda: len(stage.records) == 1)
    row = stage.records[0]
    assert (row.outcome, row.usage.completion_tokens) == ("cancelled", 1)  # billed by what was emitted


@pytest.mark.parametrize("who", ["edge_api", "llm_gateway", "output_guardrails"])
async def test_whoever_waits_for_the_answer_and_vanishes_ends_the_work(stage: Stage, who: str) -> None:
    engine = FakeEngine(Script(words=ENDLESS), autoplay=False)
    await stage.worker(engine)
    guard, _, gateway = await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    await stage.send(stage.handoff())
    await eventually(lambda: bool(engine.waiting))
    engine.step()

    gone: dict[str, Running | None] = {"edge_api": None, "llm_gateway": gateway, "output_guardrails": guard}
    running = gone[who]
    node = running.node if running else stage.edge
    last_word = Lease(service=node.service, instance=node.instance, state="gone")
    await node.bus.publish(subjects.lease(node.instance), last_word.encode())

    await eventually(lambda: not engine.running)


async def test_a_lost_guard_is_a_typed_error_at_the_edge(stage: Stage) -> None:
    engine = FakeEngine(Script(words=ENDLESS), autoplay=False)
    await stage.worker(engine)
    guard, _, _ = await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    request_id = await stage.send(stage.handoff())
    await eventually(lambda: bool(engine.waiting))

    await guard.vanish()
    last_word = Lease(service="output_guardrails", instance=guard.instance, state="gone")
    await stage.edge.bus.publish(subjects.lease(guard.instance), last_word.encode())
    heard = await stage.listen(request_id)

    assert heard.error is not None
    assert (heard.error.code, heard.error.status) == ("stop_lost", 502)
    await eventually(lambda: not engine.waiting)


async def test_200_cancels_at_random_moments_leave_nothing_behind(stage: Stage) -> None:
    engine = FakeEngine(Script(words=ENDLESS, max_running=16, max_waiting=200), autoplay=True)
    worker = await stage.worker(engine)
    guard, router, gateway = await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    chance = random.Random(7)  # noqa: S311  # the same moments in each run

    async def one() -> Exchange:
        await asyncio.sleep(chance.uniform(0, 0.4))  # the load's shape: moments, not waits
        request_id = await stage.send(stage.handoff())
        await asyncio.sleep(chance.choice([0, 0.001, 0.01, 0.1]) * chance.random())
        await stage.cancel(request_id)
        return await stage.listen(request_id)

    answers = await asyncio.gather(*(one() for _ in range(200)))

    assert all(heard.end or heard.error for heard in answers)
    services = [worker, guard, router, gateway]
    await eventually(lambda: all(each.node.num_held == 0 for each in services))
    await eventually(lambda: not any(each.node.cancels.num_held for each in services))
    assert (engine.running, engine.waiting) == ([], [])
    assert engine.stats().kv_blocks_held == 0
    accepted = len(engine.submitted) - 1
    await eventually(lambda: len(stage.records) == accepted)
    assert len({row.request_id for row in stage.records}) == accepted
    rows = {row.request_id: row for row in stage.records}
    for heard in answers:
        if row := rows.get(heard.request_id):
            assert row.usage.completion_tokens >= len(heard.token_ids)
