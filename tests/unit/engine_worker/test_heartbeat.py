from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.heartbeats import ReplicaHeartbeat, Speculation, StepProfile
from baton_engine import EngineRequest, SamplingParams, SpeculationStats
from baton_engine import StepProfile as EngineProfile
from baton_engine_worker import heartbeat as heartbeat_module
from baton_engine_worker.heartbeat import Heartbeat
from baton_engine_worker.kv_publisher import KvPublisher
from tests.support.fake_engine import FakeEngine
from tests.support.scripted_answer import Script

MODEL = "smollm2-135m"


def made(engine: FakeEngine, bus: MemoryBus | None = None) -> tuple[Node, Heartbeat]:
    node = Node(bus or MemoryBus(), "engine_worker")
    kv_events = KvPublisher(node, engine)
    return node, Heartbeat(node, engine, kv_events, MODEL, max_running=8, max_waiting=64)


async def test_the_state_is_starting_until_engine_and_inbox_are_both_ready() -> None:
    engine = FakeEngine(autoplay=False)
    node, heartbeat = made(engine)
    heartbeat.set_stage("loading weights")
    assert (heartbeat.now().state, heartbeat.now().stage) == ("starting", "loading weights")
    await engine.start()
    assert heartbeat.now().state == "starting"
    node.state = "ready"
    assert (heartbeat.now().state, heartbeat.now().stage) == ("ready", "")
    node.state = "draining"
    assert heartbeat.now().state == "draining"
    engine.crash()
    assert heartbeat.now().state == "gone"


async def test_the_load_is_the_engines() -> None:
    engine = FakeEngine(Script(words=("a ",) * 50, max_running=1, kv_blocks=100, context=777), autoplay=False)
    node, heartbeat = made(engine)
    await engine.start()
    node.state = "ready"
    sampling = SamplingParams(max_tokens=40)
    for name in ("one", "two"):
        asked = EngineRequest(name, prompt_token_ids=[1] * 20, sampling=sampling)
        engine.submit(asked, lambda _: None)
    engine.step()

    said = heartbeat.now()

    assert (said.num_running, said.num_waiting, said.waiting_tokens) == (1, 1, 20)
    assert (said.kv_blocks_held, said.kv_blocks_total, said.kv_usage) == (2, 100, 0.02)
    assert (said.max_running, said.max_waiting, said.context_length) == (8, 64, 777)
    assert said.generation_tokens_total == 1


async def test_where_time_and_guesses_went_is_told_too() -> None:
    engine = FakeEngine(autoplay=False)
    node, heartbeat = made(engine)
    await engine.start()
    node.state = "ready"
    seen = replace(
        engine.stats(),
        step_profile=EngineProfile(0.5, 8.0, 1.0, 0.25, 40, 900, draft_seconds=0.125),
        speculation=SpeculationStats(5, 20, 17, (5, 5, 4, 3)),
    )
    engine.stats = lambda: seen  # type: ignore[method-assign]

    said = heartbeat.now()

    assert said.step_profile == StepProfile(
        schedule_seconds=0.5,
        model_seconds=8,
        sample_seconds=1,
        emit_seconds=0.25,
        draft_seconds=0.125,
        steps_total=40,
        tokens_total=900,
    )
    assert said.speculation == Speculation(drafts_total=5, draft_tokens_total=20, accepted_tokens_total=17)
    assert (said.kv_epoch, said.kv_next_seq) == ("", 0)  # nothing told yet


async def test_a_change_is_told_at_once_under_the_models_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_module, "REPLICA_INTERVAL_SECONDS", 1000.0)  # by the clock none would come
    bus, heard = MemoryBus(), asyncio.Queue[BusMessage]()
    await bus.subscribe(subjects.REPLICA_ALL, heard.put_nowait)
    node, heartbeat = made(FakeEngine(autoplay=False), bus)
    beating = asyncio.create_task(heartbeat.run())
    first = await heard.get()
    heartbeat.set_stage("warm_up")
    async with asyncio.timeout(20):
        second = await heard.get()
        node.state = "draining"
        third = await heard.get()
    beating.cancel()

    assert first.subject == f"baton.v1.replica.smollm2-135m.{node.instance}"
    stages: list[Any] = [ReplicaHeartbeat.decode(each.payload).stage for each in (first, second)]
    assert stages == ["starting", "warm_up"]
    assert ReplicaHeartbeat.decode(third.payload).state == "draining"
