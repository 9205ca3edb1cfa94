from __future__ import annotations

import asyncio
from typing import Any

from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_engine import EngineRequest, SamplingParams
from baton_engine_worker.heartbeat import Heartbeat
from baton_engine_worker.kv_publisher import KvPublisher
from tests.support.fake_engine import FakeEngine, Script

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


async def test_a_change_is_told_at_once_under_the_models_name() -> None:
    bus, heard = MemoryBus(), asyncio.Queue[BusMessage]()
    await bus.subscribe(subjects.REPLICA_ALL, heard.put_nowait)
    node, heartbeat = made(FakeEngine(autoplay=False), bus)
    beating = asyncio.create_task(heartbeat.run())
    first = await heard.get()
    heartbeat.set_stage("warm_up")
    async with asyncio.timeout(0.2):  # the next one by the clock would come after a quarter second
        second = await heard.get()
        node.state = "draining"
        third = await heard.get()
    beating.cancel()

    assert first.subject == f"baton.v1.replica.smollm2-135m.{node.instance}"
    stages: list[Any] = [ReplicaHeartbeat.decode(each.payload).stage for each in (first, second)]
    assert stages == ["starting", "warm_up"]
    assert ReplicaHeartbeat.decode(third.payload).state == "draining"
