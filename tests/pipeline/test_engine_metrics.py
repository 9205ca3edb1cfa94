"""What the engine does shows on the edge's /metrics: through heartbeats, and through each answer's end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_engine import AsyncEngine
from tests.support.tiny_model import tiny_config, tiny_parts
from tests.support.whole_relay import WholeRelay, whole_relay

NUM_TOKENS = 12


async def heard_by_all(bus: NatsBus, generated: int) -> ReplicaHeartbeat:
    """The second heartbeat that counts so many tokens: the first one has reached everybody by then."""
    beats = asyncio.Queue[ReplicaHeartbeat]()
    listening = await bus.subscribe(
        subjects.REPLICA_ALL, lambda message: beats.put_nowait(ReplicaHeartbeat.decode(message.payload))
    )
    counted: list[ReplicaHeartbeat] = []
    async with asyncio.timeout(20):
        while len(counted) < 2:
            beat = await beats.get()
            counted += [beat] if beat.generation_tokens_total >= generated else []
    await listening.unsubscribe()
    return counted[0]


async def samples(relay: WholeRelay) -> dict[str, float]:
    """Name → sum over all labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families((await relay.client.get("/metrics")).text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def test_times_sizes_and_step_shares_of_an_answer(nats_url: str, tmp_path: Path) -> None:
    async with whole_relay(nats_url, tmp_path, AsyncEngine(tiny_config(), tiny_parts())) as relay:
        bus = await NatsBus.connect(nats_url, name="listener")
        answer = await relay.answer(
            temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, retrieval="off", stop=["never"]
        )
        beat = await heard_by_all(bus, NUM_TOKENS)  # the warm-up is nobody's question
        found = await samples(relay)
        await bus.close()
    num_prompt_tokens = answer["usage"]["prompt_tokens"]
    for phase in ("queue", "prefill", "decode", "inference"):
        assert found[f"vllm:request_{phase}_time_seconds_count"] == 1
    inference = found["vllm:request_inference_time_seconds_sum"]
    assert 0 < inference < found["vllm:e2e_request_latency_seconds_sum"]
    assert found["vllm:request_prompt_tokens_sum"] == num_prompt_tokens
    assert found["vllm:request_generation_tokens_sum"] == NUM_TOKENS
    assert found["baton:step_tokens_total"] == beat.step_profile.tokens_total >= num_prompt_tokens
    assert found["baton:steps_total"] == NUM_TOKENS + 2
    assert found["baton:step_seconds_total"] > 0
    assert found["vllm:num_requests_running"] == 0
