from __future__ import annotations

from typing import Any

from baton_common.clock import Clock
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_llm_gateway.served_models import ServedModels


def beat(state: Any = "ready", replica: str = "engine_worker-1") -> ReplicaHeartbeat:
    return ReplicaHeartbeat(replica=replica, model="m", state=state, sent_at=1.0)


def test_a_model_is_served_while_one_of_its_replicas_is_ready_and_heard_of() -> None:
    now = 0.0
    served = ServedModels(Clock(monotonic=lambda: now), stale_seconds=2.0)
    assert not served.ready("m")
    assert not served.ever_seen("m")
    served.on_heartbeat(beat("starting"))
    assert not served.ready("m")
    served.on_heartbeat(beat())
    assert served.ready("m")
    now = 2.1
    assert not served.ready("m")
    served.on_heartbeat(beat())
    assert served.ready("m")
    served.on_heartbeat(beat("gone"))
    assert not served.ready("m")
    assert served.ever_seen("m")


def test_replicas_that_were_killed_are_not_remembered_for_ever() -> None:
    now = 0.0
    served = ServedModels(Clock(monotonic=lambda: now), stale_seconds=2.0)
    for number in range(50):
        served.on_heartbeat(beat(replica=f"engine_worker-{number}"))
        now += 1.0
    assert len(served) == 3
    assert served.ready("m")
