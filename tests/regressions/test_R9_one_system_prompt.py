"""R9: everyone shares one system prompt: load spreads, no replica stands out, and nobody waits longer than
behind a router that knows nothing of caches.
"""

from __future__ import annotations

import statistics

import pytest

from bench.routing.policies import least_loaded, ours
from bench.routing.simulation import Outcome, Simulation
from bench.routing.traffic import arrivals

REQUESTS = 1200


def spread(outcome: Outcome) -> tuple[float, float]:
    """Least and most work of a replica, of the mean."""
    mean = statistics.fmean(outcome.work_of_replicas)
    return min(outcome.work_of_replicas) / mean, max(outcome.work_of_replicas) / mean


@pytest.mark.parametrize("num_replicas", [4, 8])
def test_the_load_spreads_although_one_replica_had_it_first(num_replicas: int) -> None:
    traffic = arrivals("one", num_replicas, REQUESTS)
    outcome = Simulation(ours, num_replicas).run(traffic)

    least, most = spread(outcome)
    assert 0.85 < least <= most < 1.15
    assert outcome.refused == 0
    assert outcome.cached_tokens > 0.8 * outcome.prompt_tokens


def test_a_fleet_has_it_everywhere_soon_and_evenly() -> None:
    """Replicas that don't have it yet are given it as soon as those that do are a little busier."""
    traffic = arrivals("one", 16, REQUESTS)
    outcome = Simulation(ours, 16).run(traffic)
    assert spread(outcome)[1] < 1.1


@pytest.mark.parametrize("load", ["one", "cold"])
def test_it_is_not_worse_than_least_loaded(load: str) -> None:
    traffic = arrivals(load, 4, REQUESTS)
    mine, least = (Simulation(pick, 4).run(traffic).row() for pick in (ours, least_loaded))
    assert mine["ttft_p50_ms"] <= least["ttft_p50_ms"]
    assert mine["ttft_p99_ms"] <= least["ttft_p99_ms"]
    assert mine["refused"] == least["refused"] == 0
