"""The delays before a restart, in seconds."""

from __future__ import annotations

from baton_cli.up.backoff import Backoff


def test_the_delay_doubles_from_0_2_to_10_seconds() -> None:
    backoff = Backoff()
    assert [backoff.after_death(0.1) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_thirty_seconds_of_life_count_as_a_good_start() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after_death(0.1)
    assert backoff.after_death(29.9) == 6.4
    assert backoff.after_death(30.0) == 0.2
    assert backoff.after_death(0.1) == 0.4
