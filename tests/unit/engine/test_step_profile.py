from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from baton_engine.step_profile import StepProfile, StepProfiler
from tests.support.engine_driver import add, ask, drain
from tests.support.tiny_model import tiny_engine


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def spends(self, seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def slower(*args: Any) -> Any:
            self.now += seconds
            return function(*args)

        return slower


def test_nothing_has_happened_yet() -> None:
    assert StepProfile().tokens_per_step == 0
    assert StepProfile().shares == {"draft": 0, "schedule": 0, "model": 0, "sample": 0, "emit": 0}


def test_each_phase_gets_its_time_and_tokens_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, clock = tiny_engine(), Clock()
    core = engine.core
    core.profiler = StepProfiler(clock)
    for owner, name, seconds in (
        (core.scheduler, "schedule", 1.0),
        (core.runner, "run", 5.0),
        (core.sampler, "sample", 3.0),
        (core.scheduler, "complete", 1.0),
    ):
        monkeypatch.setattr(owner, name, clock.spends(seconds, getattr(owner, name)))
    add(engine, ask("a", list(range(10))))
    core.step()
    one_step = StepProfile(1.0, 5.0, 3.0, 1.0, num_steps=1, num_tokens=10)
    assert core.stats().step_profile == one_step
    assert one_step.shares == {"draft": 0, "schedule": 0.1, "model": 0.5, "sample": 0.3, "emit": 0.1}
    drain(engine)
    after = core.stats().step_profile
    assert after.since(one_step) == StepProfile(23.0, 115.0, 69.0, 23.0, num_steps=23, num_tokens=23)
    assert after.tokens_per_step == pytest.approx(33 / 24)


def test_time_between_steps_is_nobodys() -> None:
    engine, clock = tiny_engine(), Clock()
    engine.core.profiler = StepProfiler(clock)
    add(engine, ask("a", [1, 2]))
    engine.core.step()
    clock.now += 1_000
    engine.core.step()
    assert engine.core.stats().step_profile.total_seconds == 0
