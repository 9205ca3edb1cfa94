"""R10: a replica that joins gets no request before it is loaded, warm and subscribed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from baton_common.bus import BusMessage
from baton_contracts import subjects
from baton_contracts.heartbeats import ReplicaHeartbeat
from tests.support.fake_engine import WORDS, FakeEngine
from tests.support.relay_stage import Stage


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
    async with asyncio.timeout(1):
        await ready.wait()
    late = await stage.ask()

    assert early.error is not None
    assert (early.error.code, early.error.status) == ("no_ready_replica", 503)
    assert "stage: loading weights" in early.error.message
    assert 2.4 <= (early.error.retry_after_seconds or 0) <= 3.6
    assert late.text == "".join(WORDS)
