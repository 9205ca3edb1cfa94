"""Spans and batches for tests of traces."""

from __future__ import annotations

import secrets
from typing import Any

from baton_contracts.spans import Span, SpanBatch
from baton_contracts.subjects import Service

SERVICE_OF_STOP: dict[int, Service] = {
    1: "edge_api",
    2: "edge_api",
    3: "prompt_builder",
    4: "input_guardrails",
    5: "llm_gateway",
    6: "inference_router",
    7: "engine_worker",
    8: "output_guardrails",
    9: "edge_api",
    10: "after_answer",
}


def make_span(stop: int, start: float, end: float, name: str = "handle", **changes: Any) -> Span:
    service = SERVICE_OF_STOP[stop]
    span = Span(
        span_id=secrets.token_hex(8),
        stop=stop,
        service=service,
        instance=f"{service}-00000001",
        name=name,
        start=start,
        duration=end - start,
    )
    return span.model_copy(update=changes)


def make_batch(request_id: str, *spans: Span, tenant_id: str = "acme") -> SpanBatch:
    return SpanBatch(request_id=request_id, tenant_id=tenant_id, spans=spans)


def whole_relay(start: float) -> list[Span]:
    """Ten stops, 10 ms apart, each handing on to the next; the engine decodes, the edge streams back."""
    spans = [
        make_span(stop, start + stop / 100, start + stop / 100 + 0.01, span_id=f"{stop:016x}")
        for stop in range(1, 11)
    ]
    engine = {"model": "smollm2-135m", "prompt_tokens": 42, "completion_tokens": 7}
    edge = {"ttft_ms": 71.5, "tpot_ms": 4.25, "finish_reason": "stop"}
    spans[6] = spans[6].model_copy(update={"attributes": engine})
    spans[8] = spans[8].model_copy(update={"attributes": edge})
    return spans
