from __future__ import annotations

from typing import Any

import pytest

from baton_contracts.errors import ErrorBody
from baton_llm_gateway.retry_policy import after_failure, backoff_seconds


def verdict(code: Any, stop: Any = None, **changes: Any) -> str:
    values: dict[str, Any] = {
        "failures": 1,
        "max_attempts": 3,
        "has_content": False,
        "can_go_on": True,
        "is_gone": False,
        "has_other": False,
    }
    return after_failure(ErrorBody(code=code, message="", stop=stop), **(values | changes))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("stop_failed", "retry"),
        ("stop_lost", "retry"),
        ("upstream_error", "retry"),
        ("stream_gap", "retry"),
        ("stop_unresponsive", "retry"),
        ("shutting_down", "retry"),
        ("no_ready_replica", "give_up"),
        ("queue_full", "give_up"),
        ("kv_exhausted", "give_up"),
        ("no_responder", "give_up"),
        ("bus_unavailable", "give_up"),
        ("deadline_exceeded", "give_up"),
        ("context_length_exceeded", "give_up"),
        ("invalid_value", "give_up"),
        ("conflict", "give_up"),
    ],
)
def test_what_follows_a_first_failure(code: str, expected: str) -> None:
    assert verdict(code) == expected


def test_a_silent_replica_has_others_beside_it_but_a_silent_router_has_had_its_time() -> None:
    assert verdict("stop_unresponsive", "engine_worker") == "retry"
    assert verdict("stop_unresponsive", "inference_router") == "give_up"


@pytest.mark.parametrize("code", ["no_ready_replica", "queue_full", "kv_exhausted"])
def test_no_seat_goes_to_the_other_model_if_there_is_one(code: str) -> None:
    assert verdict(code, has_other=True) == "other_model"


def test_a_clients_fault_is_not_taken_to_the_other_model() -> None:
    assert verdict("context_length_exceeded", has_other=True) == "give_up"


NEVER: list[dict[str, Any]] = [{"has_content": True, "can_go_on": False}, {"is_gone": True}, {"failures": 3}]


@pytest.mark.parametrize("never", NEVER, ids=str)
@pytest.mark.parametrize("code", ["stop_failed", "queue_full"])
def test_after_content_without_ids_without_a_client_or_without_attempts_nothing_follows(
    code: str, never: dict[str, Any]
) -> None:
    assert verdict(code, has_other=True, **never) == "give_up"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("stop_lost", "retry"),
        ("stop_failed", "retry"),
        ("upstream_error", "retry"),
        ("shutting_down", "retry"),
        ("queue_full", "retry"),
        ("kv_exhausted", "retry"),
        ("no_ready_replica", "give_up"),
        ("context_length_exceeded", "give_up"),
    ],
)
def test_an_answer_that_has_begun_goes_on_elsewhere_but_not_with_another_model(
    code: str, expected: str
) -> None:
    assert verdict(code, has_content=True, has_other=True) == expected


def test_the_pause_doubles_with_jitter_over_a_floor_of_50_ms() -> None:
    assert [backoff_seconds(n, lambda: 0.0) for n in (1, 2, 3)] == [0.05, 0.1, 0.2]
    assert [backoff_seconds(n, lambda: 1.0) for n in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert backoff_seconds(20, lambda: 1.0) == 1.0
