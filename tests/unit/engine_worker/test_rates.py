from __future__ import annotations

import pytest

from baton_engine_worker.rates import SlidingRate


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
