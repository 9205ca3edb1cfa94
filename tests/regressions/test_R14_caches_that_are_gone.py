"""R14: a replica clears its cache, a KV event is lost, a replica restarts: the router's index is purged or
mended within a second, and nothing is sent after a cache that is gone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from baton_common.bus import BusMessage
from baton_common.clock import Clock
from baton_contracts import subjects
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.prompt import Sampling
from baton_engine import prefix_hashes
from baton_inference_router.kv_listener import KvListener
from baton_inference_router.prefix_index import PrefixIndex, block_keys
from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Running, Stage, question
from tests.support.waiting import eventually

WORDS = question(" ".join(["word"] * 200))
NUM_TOKENS = 201
SALT = "acme"
"""The tenant that asks here."""
CHAIN = prefix_hashes([1] * (NUM_TOKENS - 1), 16, SALT)
KEYS = block_keys([digest.hex() for digest in CHAIN])
SECOND = 1.3
"""A second, and what a busy machine adds."""


@asynccontextmanager
async def listener(stage: Stage) -> AsyncGenerator[PrefixIndex, None]:
    """The router's ears alone, so that nothing is expected because it was sent."""
    index = PrefixIndex(Clock(), 10_000)
    ears = KvListener(stage.edge, index)

    def on_heartbeat(message: BusMessage) -> None:
        ears.on_heartbeat(ReplicaHeartbeat.decode(message.payload))

    await ears.start()
    subscription = await stage.edge.bus.subscribe(subjects.REPLICA_ALL, on_heartbeat)
    yield index
    await subscription.unsubscribe()
    await ears.stop()


def lose_one(worker: Running) -> list[bytes]:
    """The next KV events of that worker don't arrive; they are put into the list that is given back."""
    lost: list[bytes] = []
    publish = worker.bus.publish

    async def losing(subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        if subject == subjects.kv(worker.instance) and not lost:
            lost.append(payload)
        else:
            await publish(subject, payload, reply=reply)

    worker.bus.publish = losing  # type: ignore[method-assign]
    return lost


@asynccontextmanager
async def known_chain(stage: Stage) -> AsyncGenerator[tuple[FakeEngine, Running, PrefixIndex], None]:
    """A replica with the whole chain in its cache, of which an index knows."""
    engine = FakeEngine()
    worker = await stage.worker(engine)
    async with listener(stage) as index:
        engine.store(*CHAIN)
        await eventually(lambda: index.num_cached(worker.instance, KEYS) == len(CHAIN) == 12)
        yield engine, worker, index


async def test_a_cleared_cache_is_an_empty_index(memory_stage: Stage) -> None:
    async with known_chain(memory_stage) as (engine, worker, index):
        engine.findable.clear()
        engine.kv_log.cleared()
        engine.kv_log.flush()
        await eventually(lambda: index.num_cached(worker.instance, KEYS) == 0, SECOND)


async def test_a_lost_event_is_noticed_by_the_next_one_and_mended(memory_stage: Stage) -> None:
    async with known_chain(memory_stage) as (engine, worker, index):
        lost = lose_one(worker)
        engine.evict(*CHAIN[6:])
        await eventually(lambda: bool(lost))
        engine.evict(*CHAIN[4:6])
        await eventually(lambda: index.num_cached(worker.instance, KEYS) == 4, SECOND)


async def test_a_lost_last_event_is_noticed_by_the_heartbeats(memory_stage: Stage) -> None:
    async with known_chain(memory_stage) as (engine, worker, index):
        lost = lose_one(worker)
        engine.evict(*CHAIN[6:])
        await eventually(lambda: bool(lost))
        await eventually(lambda: index.num_cached(worker.instance, KEYS) in (0, 6), SECOND)
        await eventually(lambda: index.num_cached(worker.instance, KEYS) == 6)


async def test_a_replica_that_is_gone_has_no_cache(memory_stage: Stage) -> None:
    async with known_chain(memory_stage) as (engine, _, index):
        await engine.close()
        await eventually(lambda: index.num_replicas == 0, SECOND)


async def test_requests_go_where_their_prefix_is_cached(memory_stage: Stage) -> None:
    engines = FakeEngine(), FakeEngine()
    for engine in engines:
        await engine.start()
    engines[1].store(*CHAIN)
    workers = await memory_stage.whole(*engines)
    async with listener(memory_stage) as index:
        await eventually(lambda: index.num_cached(workers[1].instance, KEYS) == 12)
    for _ in range(4):
        heard = await memory_stage.ask(prompt=WORDS, sampling=Sampling(max_tokens=1), use_cache=False)
        assert heard.prologues[0].replica == workers[1].instance

    await eventually(lambda: any(each.name == "dispatch" for each in memory_stage.spans[heard.request_id]))
    (span,) = [each for each in memory_stage.spans[heard.request_id] if each.name == "dispatch"]
    assert (span.attributes["prompt_tokens"], span.attributes["cached_tokens"]) == (NUM_TOKENS, 192)
    assert str(span.attributes["scores"]).count("engine_worker-") == 2
