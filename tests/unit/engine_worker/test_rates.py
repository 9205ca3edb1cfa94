from __future__ import annotations

import pytest

from baton_engine_worker.rates import RecentSpeed, SlidingRate


def test_the_rate_is_what_came_in_over_the_window() -> None:
    rate = SlidingRate(window_seconds=10)
    assert rate.read(100, now=0.0) == 0.0
    assert rate.read(110, now=2.0) == 5.0
    assert rate.read(140, now=10.0) == 4.0
    assert rate.read(140, now=11.0) == pytest.approx(30 / 9)  # from 110 at 2 s
    assert rate.read(140, now=30.0) == 0.0


def test_a_counter_that_went_back_is_no_negative_rate() -> None:
    rate = SlidingRate()
    rate.read(100, now=0.0)
    assert rate.read(0, now=1.0) == 0.0


def test_the_speed_at_work_counts_no_idle_time_and_forgets() -> None:
    speed = RecentSpeed(memory=1000)
    assert speed.per_second == 0.0
    speed.note(500, 0.5)
    speed.note(0, 9.0)
    assert speed.per_second == 1000.0
    for _ in range(20):
        speed.note(1000, 0.25)
    assert 3990 < speed.per_second <= 4000
