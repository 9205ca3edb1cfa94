from __future__ import annotations

from typing import Any

import pytest

from baton_contracts.errors import ErrorBody
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_inference_router.refusals import nobody_takes, retry_after, seconds_to_work_off


def middle() -> float:
    return 0.5


def replica(**fields: Any) -> ReplicaHeartbeat:
    values: dict[str, Any] = {"replica": "engine_worker-1", "model": "m", "state": "ready", "sent_at": 1.0}
    return ReplicaHeartbeat(**(values | fields))


def refused(code: Any, message: str = "") -> ErrorBody:
    return ErrorBody(code=code, message=message, stop="engine_worker")


@pytest.mark.parametrize(
    ("seconds", "draw", "expected"),
    [
        (10, 0.0, 8.0),
        (10, 0.5, 10.0),
        (10, 0.999, 12.0),
        (0.1, 0.5, 1.0),
        (500, 0.0, 30.0),
        (30, 0.999, 30.0),
    ],
)
def test_retry_after_is_jittered_by_a_fifth_within_1_and_30_seconds(
    seconds: float, draw: float, expected: float
) -> None:
    assert retry_after(seconds, lambda: draw) == pytest.approx(expected, abs=0.01)


def test_the_wait_is_the_queue_over_the_measured_rate_of_all_replicas() -> None:
    replicas = [
        replica(num_waiting=12, requests_per_second=1.5),
        replica(num_waiting=8, requests_per_second=0.5),
    ]
    assert seconds_to_work_off(replicas) == 10.0


def test_without_a_measured_rate_a_second_a_request_is_assumed() -> None:
    assert seconds_to_work_off([replica(num_waiting=4)]) == 4.0
    assert seconds_to_work_off([]) == 1.0


def test_none_running() -> None:
    error = nobody_takes("m", [], [], num_ready=0, draw=middle)
    assert (error.code, error.status, error.retry_after_seconds) == ("no_ready_replica", 503, 10.0)
    assert "none is running" in error.message


def test_one_starting_says_its_stage() -> None:
    starting = replica(state="starting", stage="loading weights")
    error = nobody_takes("m", [starting], [], num_ready=0, draw=middle)
    assert (error.code, error.retry_after_seconds) == ("no_ready_replica", 3.0)
    assert "stage: loading weights" in error.message


def test_all_full_is_queue_full_with_the_computed_wait() -> None:
    full = replica(num_waiting=20, requests_per_second=4.0)
    error = nobody_takes("m", [full], [], num_ready=1, draw=middle)
    assert (error.code, error.retry_after_seconds) == ("queue_full", 5.0)


def test_a_mix_of_refusals_is_queue_full() -> None:
    error = nobody_takes("m", [replica()], [refused("kv_exhausted"), refused("queue_full")], num_ready=0)
    assert error.code == "queue_full"


def test_all_without_memory_is_kv_exhausted_in_the_replicas_words() -> None:
    error = nobody_takes("m", [replica()], [refused("kv_exhausted", "needs 9 blocks")], num_ready=0)
    assert (error.code, error.message) == ("kv_exhausted", "needs 9 blocks")


def test_an_engine_that_is_not_ready_after_all_is_no_ready_replica() -> None:
    error = nobody_takes("m", [replica()], [refused("no_ready_replica")], num_ready=0, draw=middle)
    assert error.code == "no_ready_replica"
