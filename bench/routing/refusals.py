"""How fast a 503 is: the router itself over NATS, every replica at its bound, many who ask at once."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.handoffs import Ack, EngineWork, RouteHandoff
from baton_contracts.heartbeats import REPLICA_INTERVAL_SECONDS, ReplicaHeartbeat
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import Message, Part, Prompt
from baton_inference_router.__main__ import wire as wire_router
from baton_inference_router.settings import Settings as RouterSettings
from bench.routing.processes import nats_server
from bench.routing.simulation import quantile

MODEL = "full"
PROMPT = Prompt(messages=(Message(role="user", parts=(Part(text="Is there room? " * 40),)),))


async def measure_refusals(num_replicas: int = 8, count: int = 2000, at_once: int = 50) -> dict[str, float]:
    """Milliseconds from the question to its refusal, as the gateway sees them."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(nats_server())
        asking = await NatsBus.connect(url, name="llm_gateway")
        serving = await NatsBus.connect(url, name="inference_router")
        stack.push_async_callback(asking.close)
        stack.push_async_callback(serving.close)
        node = Node(serving, "inference_router")
        await node.start()
        beating = asyncio.create_task(_beat(asking, num_replicas))
        await stack.enter_async_context(wire_router(RouterSettings(), node, serving))
        await node.become_ready()
        turns, seconds = asyncio.Semaphore(at_once), list[float]()
        await asyncio.gather(*(_refused(asking, turns, seconds) for _ in range(count)))
        beating.cancel()
        await node.stop()
    ordered = sorted(seconds)
    return {
        "refusals": count,
        "at_once": at_once,
        "p50_ms": round(1000 * quantile(ordered, 0.5), 2),
        "p99_ms": round(1000 * quantile(ordered, 0.99), 2),
    }


async def _refused(bus: NatsBus, turns: asyncio.Semaphore, seconds: list[float]) -> None:
    async with turns:
        now, request_id = time.time(), new_request_id()
        envelope = Envelope(
            request_id=request_id,
            run_id="00000000",
            tenant=Tenant(tenant_id="bench", key_id="bench"),
            edge="edge_api-bench",
            conversation_id="bench",
            deadline=now + 30,
            sent_at=now,
        )
        work = EngineWork(model=MODEL, prompt=PROMPT)
        handoff = RouteHandoff(envelope=envelope, work=work, gateway="g", guard="o").encode()
        started = time.perf_counter()
        ack = Ack.decode(await bus.request(subjects.route(request_id), handoff, timeout=10))
        seconds.append(time.perf_counter() - started)
        assert ack.error, ack
        assert ack.error.code == "queue_full", ack.error
        assert ack.error.retry_after_seconds, ack.error


async def _beat(bus: NatsBus, num_replicas: int) -> None:
    while True:
        for number in range(num_replicas):
            beat = ReplicaHeartbeat(
                replica=f"engine_worker-{number}",
                model=MODEL,
                state="ready",
                sent_at=time.time(),
                num_running=8,
                num_waiting=8,
                max_running=8,
                max_waiting=8,
            )
            await bus.publish(subjects.replica(MODEL, beat.replica), beat.encode())
        await asyncio.sleep(REPLICA_INTERVAL_SECONDS)
