from __future__ import annotations

import asyncio

import pytest

from baton_common.clock import Clock
from baton_engine import EngineRequest
from baton_engine_worker.lifecycle import FailureWatch
from tests.support.fake_engine import FakeEngine


class Time:
    now = 0.0


async def started() -> tuple[FakeEngine, FailureWatch]:
    engine = FakeEngine(autoplay=False)
    await engine.start()
    Time.now = 0.0
    return engine, FailureWatch(engine, Clock(monotonic=lambda: Time.now), stuck_seconds=60.0)


def looks(watch: FailureWatch, at: float) -> None:
    Time.now = at
    watch.look()


async def is_failed(watch: FailureWatch) -> str | None:
    failing = asyncio.create_task(watch.failed())
    await asyncio.wait({failing}, timeout=0.01)
    if failing.done():
        return failing.result()
    failing.cancel()
    return None


async def test_an_idle_engine_and_one_that_steps_are_sound() -> None:
    engine, watch = await started()
    looks(watch, 500.0)
    engine.submit(EngineRequest("a", prompt_token_ids=[1]), lambda _: None)
    for at in (550.0, 600.0, 650.0):
        engine.step()
        looks(watch, at)
    assert await is_failed(watch) is None


async def test_work_without_a_step_for_a_minute_is_a_failure() -> None:
    engine, watch = await started()
    looks(watch, 100.0)
    engine.submit(EngineRequest("a", prompt_token_ids=[1]), lambda _: None)
    looks(watch, 160.0)
    assert await is_failed(watch) is None
    looks(watch, 160.1)
    assert await is_failed(watch) == "no step has ended for 60 s"


@pytest.mark.parametrize("held", [True, False])
async def test_an_engine_that_says_it_failed_is_believed(held: bool) -> None:
    engine, watch = await started()
    if held:
        engine.submit(EngineRequest("a", prompt_token_ids=[1]), lambda _: None)
    engine.crash("out of memory")
    watch.look()
    assert await is_failed(watch) == "out of memory"
