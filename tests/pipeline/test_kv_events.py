"""KV events over a real NATS server, each side with its own permissions, from the real engine's cache."""

from __future__ import annotations

import asyncio

from baton_contracts import subjects
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.prompt import Sampling
from baton_engine import AsyncEngine
from tests.support.kv_mirror import KvMirror
from tests.support.relay_stage import Stage, question
from tests.support.restricted_nats import RestrictedNats
from tests.support.tiny_model import tiny_config, tiny_parts

SAMPLING = Sampling(temperature=0, max_tokens=40, ignore_eos=True)


async def test_a_router_hears_what_a_replica_caches_and_a_late_one_asks(
    stage: Stage, relay_nats: RestrictedNats
) -> None:
    [worker] = await stage.whole(AsyncEngine(tiny_config(), tiny_parts()))
    router = await relay_nats.connect("inference_router")
    early = KvMirror(router, worker.instance)
    await early.listen()
    await early.ask()
    heard = await stage.ask(prompt=question("six times seven?"), sampling=SAMPLING, use_cache=False)
    assert heard.end is not None
    num_tokens = heard.end.usage.prompt_tokens + heard.end.usage.completion_tokens - 1
    await early.until(lambda mirror: len(mirror.hashes) == num_tokens // 16)

    late = KvMirror(router, worker.instance)
    await late.listen()
    assert (await late.ask()).error is None
    await late.until(lambda mirror: mirror.hashes == early.hashes)

    beats = asyncio.Queue[ReplicaHeartbeat]()
    await router.subscribe(
        subjects.REPLICA_ALL, lambda message: beats.put_nowait(ReplicaHeartbeat.decode(message.payload))
    )
    async with asyncio.timeout(20):
        beat = await beats.get()
    last = late.messages[-1]
    assert (beat.kv_epoch, beat.kv_next_seq) == (last.epoch, last.seq + 1)
    assert beat.step_profile.tokens_total >= num_tokens
    await router.close()
