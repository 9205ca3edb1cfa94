"""A target that has failed for days is still only left alone, and still found well again."""

from __future__ import annotations

from baton_common.clock import Clock
from baton_common.routes import Target
from baton_llm_gateway.providers.failures import broken
from baton_llm_gateway.target_health import FAILURES_IN_A_ROW, MAX_COOLDOWN_SECONDS, TargetHealth

TARGET = Target(name="far/0", base_url="http://far", model="far", cooldown_seconds=10.0)


def test_the_cooldown_doubles_up_to_its_bound_however_often_the_target_fails() -> None:
    now = 0.0
    health = TargetHealth(Clock(monotonic=lambda: now))
    waits: list[float] = []
    for number in range(1200):
        assert health.may_be_tried(TARGET)
        health.tried(TARGET)
        health.learn(TARGET, broken(TARGET, "is away"), answered=False)
        if number + 1 >= FAILURES_IN_A_ROW:
            waits.append(health.seconds_left(TARGET))
            now += waits[-1]
    assert waits[:6] == [10.0, 20.0, 40.0, 80.0, 160.0, MAX_COOLDOWN_SECONDS]
    assert set(waits[6:]) == {MAX_COOLDOWN_SECONDS}
    health.learn(TARGET, None, answered=True)
    assert health.seconds_left(TARGET) == 0.0
