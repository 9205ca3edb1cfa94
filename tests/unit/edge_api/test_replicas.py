"""Heartbeats: the list of models, readiness and gauges that come of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from baton_common.bus import BusMessage
from baton_common.catalog import Alias, Catalog
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_common.routes import Route, Target
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.frames import Timings, Usage
from baton_contracts.heartbeats import Lease, ReplicaHeartbeat, State, StepProfile
from baton_contracts.subjects import Service
from baton_edge_api import readiness
from baton_edge_api.keys import KeyRing
from baton_edge_api.metrics import Metrics
from baton_edge_api.readiness import RELAY, missing_parts
from baton_edge_api.replicas import ReplicaBoard

ALIASES = {
    "auto": Alias("auto", "small", "large", "Either."),
    "other": Alias("other", "absent", None, "None of these."),
}

GUESSED = {"drafts_total": 5, "draft_tokens_total": 20, "accepted_tokens_total": 17}


@dataclass
class Time:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def board(time: Time, bus: MemoryBus | None = None) -> ReplicaBoard:
    return ReplicaBoard(bus or MemoryBus(), Catalog({}, ALIASES), monotonic=time, wall=time, stale_after=2.0)


def beat(replica: str = "r1", model: str = "small", state: State = "ready", **more: Any) -> ReplicaHeartbeat:
    return ReplicaHeartbeat.model_validate(
        {"replica": replica, "model": model, "state": state, "sent_at": 0.0, "context_length": 8192} | more
    )


def test_models_of_other_servers_are_listed_without_a_heartbeat() -> None:
    far = Route("far", (Target("far/0", base_url="https://x.test/v1"),), context_length=4096)
    here = Route("here", (Target("here/local"),))
    catalog = Catalog({}, {"best": Alias("best", "far", None, "")}, {"far": far, "here": here})
    models = ReplicaBoard(MemoryBus(), catalog, monotonic=lambda: 1.0, wall=lambda: 9.0).models()
    assert [(model.name, model.context_length) for model in models] == [("far", 4096), ("best", None)]


def test_models_are_the_ready_ones_and_the_aliases_that_stand_for_them() -> None:
    time = Time()
    replicas = board(time)
    assert replicas.models() == []
    replicas.note(beat("r1"))
    replicas.note(beat("r2", "loading", "starting"))
    assert [(model.name, model.context_length) for model in replicas.models()] == [
        ("small", 8192),
        ("auto", None),
    ]


def test_a_silent_replica_and_one_that_says_goodbye_are_gone() -> None:
    time = Time()
    replicas = board(time)
    replicas.note(beat("r1"))
    replicas.note(beat("r2"))
    replicas.note(beat("r2", state="gone"))
    assert [heartbeat.replica for heartbeat in replicas.ready()] == ["r1"]
    time.now += 2.1
    assert replicas.fresh() == []


async def test_heartbeats_come_over_the_bus_and_a_broken_one_is_passed_over() -> None:
    bus, time = MemoryBus(), Time()
    replicas = board(time, bus)
    await replicas.start()
    for subscription in bus.subscriptions:
        subscription.on_message(BusMessage(subjects.replica("small", "r1"), b"{"))
        subscription.on_message(BusMessage(subjects.replica("small", "r1"), beat().encode()))
    assert [heartbeat.replica for heartbeat in replicas.ready()] == ["r1"]
    await replicas.stop()
    assert bus.subscriptions == []


async def ready_node() -> tuple[Node, KeyRing, ReplicaBoard]:
    """Everything is there."""
    bus = MemoryBus()
    node = Node(bus, "edge_api")
    await node.leases.start()
    node.state = "ready"
    for service in RELAY:
        lease = Lease(service=service, instance=f"{service}-1", state="ready")
        for subscription in bus.subscriptions:
            subscription.on_message(BusMessage(subjects.lease(lease.instance), lease.encode()))
        await answer_pings(bus, service, lease.instance)
    ring = KeyRing("")
    ring.replace({})
    replicas = board(Time(), bus)
    replicas.note(beat("engine_worker-1"))
    return node, ring, replicas


async def answer_pings(bus: MemoryBus, service: Service, instance: str) -> None:
    def answer(message: BusMessage) -> None:
        spawn(bus.publish(message.reply, b"{}"))

    await bus.subscribe(subjects.ping(service, instance), answer)


async def test_ready_when_everything_is_there() -> None:
    assert await missing_parts(*await ready_node()) == []


@pytest.mark.parametrize("service", RELAY)
async def test_a_service_that_drains_is_missing_by_name(service: str) -> None:
    node, ring, replicas = await ready_node()
    lease = Lease(service=service, instance=f"{service}-1", state="draining")  # type: ignore[arg-type]
    for subscription in node.bus.subscriptions:  # type: ignore[attr-defined]
        subscription.on_message(BusMessage(subjects.lease(lease.instance), lease.encode()))
    assert await missing_parts(node, ring, replicas) == [service]


@pytest.mark.parametrize("service", RELAY)
async def test_a_service_that_was_just_killed_is_missing_though_its_lease_still_stands(
    service: Service,
) -> None:
    node, ring, replicas = await ready_node()
    bus = cast(MemoryBus, node.bus)
    killed = subjects.ping(service, f"{service}-1")
    bus.subscriptions[:] = [held for held in bus.subscriptions if held.pattern != killed]
    assert await missing_parts(node, ring, replicas) == [service]


async def test_the_replica_that_beats_must_be_there_itself() -> None:
    node, ring, _ = await ready_node()
    replicas = board(Time())
    replicas.note(beat("engine_worker-gone"))
    assert await missing_parts(node, ring, replicas) == ["replica"]


async def test_one_that_is_slow_to_answer_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_CALL_SECONDS", 0.001)
    node, ring, replicas = await ready_node()
    bus = cast(MemoryBus, node.bus)
    slow = subjects.ping("embedder", "embedder-1")
    bus.subscriptions[:] = [held for held in bus.subscriptions if held.pattern != slow]
    await bus.subscribe(slow, lambda _: None)
    assert await missing_parts(node, ring, replicas) == []


async def test_every_other_reason_not_to_be_ready() -> None:
    node, ring, replicas = await ready_node()
    assert await missing_parts(node, KeyRing(""), replicas) == ["keys"]
    assert await missing_parts(node, ring, board(Time())) == ["replica"]
    node.state = "draining"
    assert await missing_parts(node, ring, replicas) == ["edge_api (draining)"]
    node.state = "ready"
    node.bus.online = False  # type: ignore[attr-defined]
    assert await missing_parts(node, ring, replicas) == ["bus"]


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    """(name, value of its label; the replica's where there is one) → value."""
    return {
        (sample.name, sample.labels.get("replica") or sample.labels.get("model_name", "")): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_the_gauges_of_each_replica_bear_vllms_names() -> None:
    time = Time()
    replicas = board(time)
    more = {"num_running": 3, "num_waiting": 2, "kv_usage": 0.25, "preemptions_total": 4}
    replicas.note(beat("r1", **more))
    replicas.note(beat("r2", prefix_hit_tokens_total=64, prompt_tokens_total=100, speculation=GUESSED))
    found = samples(Metrics(replicas.fresh))
    assert found["vllm:num_requests_running", "r1"] == 3
    assert found["vllm:num_requests_running", "r2"] == 0
    assert found["vllm:num_requests_waiting", "r1"] == 2
    assert found["vllm:kv_cache_usage_perc", "r1"] == 0.25
    assert found["vllm:num_preemptions_total", "r1"] == 4
    assert found["vllm:prefix_cache_hits_total", "r2"] == 64
    assert found["vllm:prefix_cache_queries_total", "r2"] == 100
    assert found["vllm:spec_decode_num_drafts_total", "r2"] == 5
    assert found["vllm:spec_decode_num_draft_tokens_total", "r2"] == 20
    assert found["vllm:spec_decode_num_accepted_tokens_total", "r2"] == 17
    time.now += 10
    assert ("vllm:num_requests_running", "r1") not in samples(Metrics(replicas.fresh))


def test_a_finished_answer_is_counted_and_timed() -> None:
    metrics = Metrics(list)
    usage = Usage(prompt_tokens=7, completion_tokens=3)
    metrics.finished("m", "stop", usage, [10.5, 10.6, 10.8], began=10.0, ended=11.0)
    found = samples(metrics)
    assert found["vllm:prompt_tokens_total", "m"] == 7
    assert found["vllm:generation_tokens_total", "m"] == 3
    assert found["vllm:request_success_total", "m"] == 1
    assert found["vllm:time_to_first_token_seconds_sum", "m"] == pytest.approx(0.5)
    assert found["vllm:inter_token_latency_seconds_count", "m"] == 2
    assert found["vllm:time_per_output_token_seconds_sum", "m"] == pytest.approx(0.15)
    assert found["vllm:e2e_request_latency_seconds_sum", "m"] == pytest.approx(1.0)


def test_where_the_engines_time_went_is_told_by_phase() -> None:
    profile = StepProfile(
        schedule_seconds=0.5,
        model_seconds=8,
        sample_seconds=1,
        emit_seconds=0.25,
        draft_seconds=0.125,
        steps_total=40,
        tokens_total=900,
    )
    metrics = Metrics(lambda: [beat("r1").model_copy(update={"step_profile": profile})])
    [family] = [
        f for f in text_string_to_metric_families(metrics.text().decode()) if f.name == "baton:step_seconds"
    ]
    assert {sample.labels["phase"]: sample.value for sample in family.samples} == {
        "draft": 0.125,
        "schedule": 0.5,
        "model": 8,
        "sample": 1,
        "emit": 0.25,
    }
    found = samples(metrics)
    assert (found["baton:steps_total", "r1"], found["baton:step_tokens_total", "r1"]) == (40, 900)


def test_the_engines_times_of_an_answer_bear_vllms_names() -> None:
    metrics = Metrics(list)
    metrics.finished("m", "stop", Usage(prompt_tokens=7, completion_tokens=3), [], began=1.0, ended=2.0)
    metrics.engine_took("m", Timings(queued_at=1.0, scheduled_at=1.2, first_token_at=1.5, finished_at=2.5))
    metrics.engine_took("m", Timings(queued_at=1.0, finished_at=2.5))  # cancelled while it waited
    found = samples(metrics)
    seconds = {
        phase: found[f"vllm:request_{phase}_time_seconds_sum", "m"]
        for phase in ("queue", "prefill", "decode", "inference")
    }
    assert seconds == pytest.approx({"queue": 0.2, "prefill": 0.3, "decode": 1.0, "inference": 1.3})
    assert found["vllm:request_queue_time_seconds_count", "m"] == 1
    assert found["vllm:request_prompt_tokens_sum", "m"] == 7
    assert found["vllm:request_generation_tokens_sum", "m"] == 3


def test_an_answer_without_text_has_no_token_times() -> None:
    metrics = Metrics(list)
    metrics.finished("m", "length", Usage(), [], began=1.0, ended=2.0)
    assert ("vllm:time_to_first_token_seconds_sum", "m") not in samples(metrics)


def test_a_models_queue_is_that_of_all_its_replicas() -> None:
    beats = [
        beat("r1", num_waiting=3, waiting_tokens=900, prefill_tokens=50),
        beat("r2", num_waiting=2, waiting_tokens=40),
        beat("r3", state="draining", num_waiting=1),
        beat("r4", model="large"),
    ]
    text = Metrics(lambda: beats).text().decode()
    found = {
        (sample.name, sample.labels["model_name"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("baton:model_")
    }
    assert found == {
        ("baton:model_replicas_ready", "small"): 2,
        ("baton:model_queue_length", "small"): 6,
        ("baton:model_queue_tokens", "small"): 990,
        ("baton:model_replicas_ready", "large"): 1,
        ("baton:model_queue_length", "large"): 0,
        ("baton:model_queue_tokens", "large"): 0,
    }
