"""R11, R12, R13: overload, drained, scaled to zero: at once a 503 with reason and jittered Retry-After; a
replica over its bound gets nothing while another has room.
"""

from __future__ import annotations

import asyncio
from statistics import median

from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Stage
from tests.support.scripted_answer import Script
from tests.support.waiting import eventually

ONE_SEAT = Script(max_running=1, max_waiting=1, stall_after=0)


async def test_overload_is_refused_before_the_queue_grows_and_within_50_ms(stage: Stage) -> None:
    engines = [FakeEngine(ONE_SEAT), FakeEngine(ONE_SEAT)]
    await stage.whole(*engines)
    held = await stage.fill(*engines)

    refused = [await stage.ask() for _ in range(100)]

    assert {heard.error.code for heard in refused if heard.error} == {"queue_full"}
    assert len(refused) == 100
    assert median(heard.seconds for heard in refused) < 0.05
    assert max(len(each.waiting) for each in engines) == 1
    waits = [heard.error.retry_after_seconds for heard in refused if heard.error]
    assert len(set(waits)) > 10
    assert all(wait is not None and 1 <= wait <= 30 for wait in waits)
    for request_id in held:
        await stage.cancel(request_id)
        await stage.listen(request_id)


async def test_one_over_its_bound_gets_nothing_while_another_has_room(stage: Stage) -> None:
    small, roomy = FakeEngine(ONE_SEAT), FakeEngine(Script(stall_after=0, max_running=50))
    await stage.whole(small, roomy)

    held = [await stage.send(stage.handoff()) for _ in range(30)]
    await eventually(lambda: len(roomy.running) + len(small.running) + len(small.waiting) == 30)

    assert len(small.submitted) - 1 <= 2
    for request_id in held:
        await stage.cancel(request_id)
        heard = await stage.listen(request_id)
        assert heard.error is None


async def test_drained_and_scaled_to_zero_is_a_503_never_a_404(stage: Stage) -> None:
    engine = FakeEngine()
    worker = await stage.worker(engine, model="my-own-model")
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    answered = await stage.ask(model="my-own-model")
    await worker.node.drain(1)
    drained = await stage.ask(model="my-own-model")
    await worker.vanish()
    gone = await stage.ask(model="my-own-model")
    never = await stage.ask(model="never-seen")

    assert answered.error is None
    for heard in (drained, gone):
        assert heard.error is not None
        assert (heard.error.code, heard.error.status) == ("no_ready_replica", 503)
        assert heard.error.retry_after_seconds
        assert heard.seconds < 1  # at once: no time-out of ours is that short
    assert never.error is not None
    assert (never.error.code, never.error.status) == ("model_not_found", 404)
