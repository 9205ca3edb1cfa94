"""Processes beat at the same moments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_common.clock import Clock


@pytest.mark.parametrize(
    ("now", "seconds"),
    [(100.0, 0.5), (100.125, 0.375), (100.25, 0.25), (100.375, 0.625), (100.4999, 0.5001)],
)
def test_the_next_beat_is_a_whole_multiple_not_too_near(now: float, seconds: float) -> None:
    assert Clock(wall=lambda: now).seconds_to_beat(0.5) == pytest.approx(seconds)


@given(starts=st.lists(st.floats(0, 10), min_size=2, max_size=5))
def test_wherever_they_start_all_meet_and_no_gap_is_over_one_and_a_half(starts: list[float]) -> None:
    beats: list[set[int]] = []
    for now in starts:
        times: set[int] = set()
        for _ in range(60):
            step = Clock(wall=lambda now=now: 1e9 + now).seconds_to_beat(0.5)
            assert 0.25 <= step <= 0.75
            now += step  # noqa: PLW2901 - time goes on
            times.add(round(now * 2))
            assert now * 2 == pytest.approx(round(now * 2), abs=1e-4)
        beats.append(times)
    assert set(range(30, 50)) <= set.intersection(*beats)
