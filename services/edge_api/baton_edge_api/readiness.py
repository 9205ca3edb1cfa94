"""Whether a question would be answered now, and if not, what is missing."""

from __future__ import annotations

from baton_common.node import Node
from baton_contracts.subjects import Service
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


def missing_parts(node: Node, ring: KeyRing, replicas: ReplicaBoard) -> list[str]:
    """Empty: a question would be answered."""
    missing: list[str] = []
    if node.state != "ready":
        missing.append(f"edge_api ({node.state})")
    if not node.bus.connected:
        return [*missing, "bus"]
    if not ring.synced:
        missing.append("keys")
    missing += [service for service in RELAY if not node.leases.ready_instances(service)]
    if "engine_worker" not in missing and not replicas.ready():
        missing.append("replica")
    return missing
