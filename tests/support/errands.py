"""One request as the gateway has it in hand, over a memory bus."""

from __future__ import annotations

from baton_common.context import RequestContext
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_common.tracing import SpanRecorder
from baton_contracts.handoffs import GatewayHandoff
from baton_contracts.prompt import ChatRequest, Message, Part, Prompt
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.model_choice import Choice
from tests.support.relay import make_envelope

GUARD, EDGE = "output_guardrails-1", "edge_api-1"


def errand_over(bus: MemoryBus, *, guard: str | None = GUARD) -> Errand:
    node = Node(bus, "llm_gateway")
    envelope = make_envelope(edge=EDGE)
    ctx = RequestContext(node, envelope, SpanRecorder(node.service, node.instance, 5, node.clock))
    messages = (Message(role="user", parts=(Part(text="Hello?"),)),)
    handoff = GatewayHandoff(
        envelope=envelope,
        chat=ChatRequest(model="m", messages=messages),
        prompt=Prompt(messages=messages),
        plain=guard is None,
    )
    return Errand.of(ctx, handoff, Choice("m", "named", ""), Cancellation(), guard)
