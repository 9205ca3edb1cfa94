"""R10: a replica that joins gets no request before it is loaded, warm and subscribed; then more and more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from baton_common.bus import BusMessage
from baton_contracts import subjects
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.scoring import ranked
from tests.support.fake_engine import FakeEngine
from tests.support.relay import HandClock
from tests.support.relay_stage import Stage
from tests.support.scripted_answer import WORDS


class SlowToLoad(FakeEngine):
    def __init__(self) -> None:
        super().__init__()
        self.loaded = asyncio.Event()

    async def start(self, on_progress: Callable[[str], None] | None = None) -> None:
        assert on_progress
        on_progress("loading weights")
        await self.loaded.wait()
        await super().start(on_progress)


async def test_no_request_before_it_is_warm(memory_stage: Stage) -> None:
    stage = memory_stage
    engine = SlowToLoad()
    ready = asyncio.Event()

    def note(message: BusMessage) -> None:
        if ReplicaHeartbeat.decode(message.payload).state == "ready":
            ready.set()

    joining = asyncio.create_task(stage.worker(engine))
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway())

    await stage.edge.bus.subscribe(subjects.REPLICA_ALL, note)  # after the router: it hears each one first
    early = await stage.ask()
    engine.loaded.set()
    await joining
    assert [asked.request_id for asked in engine.submitted] == ["warm-up"]
    async with asyncio.timeout(20):
        await ready.wait()
    late = await stage.ask()

    assert early.error is not None
    assert (early.error.code, early.error.status) == ("no_ready_replica", 503)
    assert "stage: loading weights" in early.error.message
    assert 2.4 <= (early.error.retry_after_seconds or 0) <= 3.6
    assert late.text == "".join(WORDS)


def test_then_it_gets_its_share_step_by_step() -> None:
    """Three replicas with ten requests each; the fourth becomes ready and grows to ten within ten seconds."""
    time = HandClock()
    table = ReplicaTable(time.clock, stale_seconds=60.0, ramp_seconds=10.0)

    def beat(name: str, state: str = "ready", running: int = 0) -> None:
        time.move(0.001)
        fields = {"replica": name, "model": "m", "state": state, "sent_at": time.now, "num_running": running}
        since = {"counting_since": time.now} if name == "new" and state == "ready" else {}
        table.on_heartbeat(ReplicaHeartbeat.model_validate(fields | since | {"max_running": 64}))

    for name in ("old-1", "old-2", "old-3"):
        beat(name, running=10)
    beat("new", "starting")
    beat("new")
    taken: list[int] = []
    for seconds in (0.0, 3.0, 3.0, 4.0):
        time.move(seconds)
        while ranked(table.candidates("m"))[0].replica == "new":
            table.reserve("new")
        taken.append(next(each.load for each in table.candidates("m") if each.replica == "new"))
    assert taken == [1, 3, 6, 10]
