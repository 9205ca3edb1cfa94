from __future__ import annotations

from typing import Any

import pytest

from baton_engine import ConfigError, InvalidParameter
from baton_engine.kv_cache import KVCache
from baton_engine.queue_order import QueueOrder, by_priority, first_come
from baton_engine.request import Request
from baton_engine.sampling_params import SamplingParams
from baton_engine.scheduler import Scheduler
from tests.support.engine_driver import add, ask, drain
from tests.support.tiny_model import tiny_config, tiny_engine


def queued(at: float, name: str, priority: int = 0) -> Request:
    prompt = tuple(1_000 * ord(name) + index for index in range(6))
    return Request(name, prompt, SamplingParams(), 50, seed=0, priority=priority, queued_at=at)


def waiting(order: QueueOrder, *requests: Request) -> str:
    core = Scheduler(KVCache(32, block_size=4), 8, 64, order)
    for one in requests:
        core.add(one)
    return "".join(one.request_id for one in core.waiting)


def test_first_come_ignores_priorities() -> None:
    assert waiting(first_come, queued(0, "a", 9), queued(1, "b", 0), queued(2, "c", -5)) == "abc"


def test_priority_first_then_arrival() -> None:
    requests = queued(0, "a", 5), queued(1, "b", 1), queued(2, "c", 5), queued(3, "d", 1)
    assert waiting(by_priority(1000), *requests) == "bdac"


@pytest.mark.parametrize(("late_at", "expected"), [(49.0, "ba"), (51.0, "ab")])
def test_waiting_makes_up_for_priority(late_at: float, expected: str) -> None:
    """At 10 s a level, five levels are worth 50 s of waiting."""
    assert waiting(by_priority(10), queued(0, "a", 5), queued(late_at, "b", 0)) == expected


def test_a_steady_stream_of_urgent_requests_starves_nobody() -> None:
    """One seat, an urgent arrival each second: the patient one is served after its 3 × 10 seconds."""
    core = Scheduler(KVCache(32, block_size=4), 1, 64, by_priority(10))
    patient = queued(0.5, "p", 3)
    core.add(patient)
    served: list[str] = []
    for second in range(40):
        core.add(queued(second, chr(200 + second), 0))
        (chunk,) = core.schedule().chunks
        served.append(chunk.request.request_id)
        core.finish(chunk.request)
    assert served.index("p") == 31  # behind the urgent ones of seconds 0 to 30


def test_the_last_in_order_is_preempted() -> None:
    core = Scheduler(KVCache(5, block_size=4), 8, 64, by_priority(10))
    late_and_urgent, early = queued(5, "u", 0), queued(0, "e", 1)  # 5 against 10
    for one in (early, late_and_urgent):
        core.add(one)
    preempted: list[Request] = []
    while not preempted:
        plan = core.schedule()
        preempted += plan.preempted
        core.complete(plan)
        for chunk in plan.chunks:
            chunk.request.token_ids.append(7)
    assert preempted == [early]


@pytest.mark.parametrize(("policy", "first"), [("fcfs", "patient"), ("priority", "urgent")])
def test_the_policy_is_configured(policy: str, first: str) -> None:
    engine = tiny_engine(max_num_seqs=1, scheduling_policy=policy)
    add(engine, ask("patient", [1, 2], priority=1))
    add(engine, ask("urgent", [3, 4], priority=0))
    assert next(iter(drain(engine))) == first


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"scheduling_policy": "lottery"}, "scheduling_policy is 'lottery'; use fcfs or priority"),
        ({"priority_ageing_seconds": -1.0}, "priority_ageing_seconds is -1.0"),
        ({"priority_ageing_seconds": float("nan")}, "priority_ageing_seconds is nan"),
    ],
)
def test_bad_values_stop_the_start(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        tiny_config(**changes)


def test_a_priority_without_bound_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="priority is 1000001"):
        add(tiny_engine(), ask("a", [1], priority=1_000_001))
