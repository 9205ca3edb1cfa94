"""Whether a question would be answered now, and if not, what is missing.

A lease alone is not enough: that of a process which was just killed still stands for some seconds. So each
instance that counts is called by name, and NATS says at once if nobody is there.
"""

from __future__ import annotations

import asyncio

from baton_common.bus import Bus
from baton_common.errors import BusError, NoResponders
from baton_common.node import Node
from baton_contracts.subjects import Service, ping
from baton_edge_api.keys import KeyRing
from baton_edge_api.replicas import ReplicaBoard

RELAY: tuple[Service, ...] = (
    "prompt_builder",
    "embedder",
    "input_guardrails",
    "llm_gateway",
    "inference_router",
    "engine_worker",
    "output_guardrails",
    "after_answer",
    "trace_console",
)
"""All of them: without the last two an answer would come, but nothing would be kept of it."""

PLAIN: tuple[Service, ...] = ("llm_gateway", "after_answer")
"""Those of a plain gateway; traces are nice to have there."""

_CALL_SECONDS = 0.3


async def missing_parts(
    node: Node, ring: KeyRing, replicas: ReplicaBoard, relay: tuple[Service, ...] = RELAY
) -> list[str]:
    """Empty: a question would be answered."""
    missing: list[str] = []
    if node.state != "ready":
        missing.append(f"edge_api ({node.state})")
    if not node.bus.connected:
        return [*missing, "bus"]
    if not ring.synced:
        missing.append("keys")
    instances: list[tuple[Service, str]] = [
        (service, name) for service in relay for name in node.leases.ready_instances(service)
    ]
    there = await asyncio.gather(*(_is_there(node.bus, service, name) for service, name in instances))
    alive = [instance for instance, answers in zip(instances, there, strict=True) if answers]
    services = {service for service, _ in alive}
    missing += [service for service in relay if service not in services]
    names = {name for _, name in alive}
    if "engine_worker" in services and not any(beat.replica in names for beat in replicas.ready()):
        missing.append("replica")
    return missing


async def _is_there(bus: Bus, service: Service, instance: str) -> bool:
    """One that is only slow to answer is there: its lease says how long it may be."""
    try:
        await bus.request(ping(service, instance), b"", timeout=_CALL_SECONDS)
    except NoResponders:
        return False
    except BusError:
        return True
    return True
