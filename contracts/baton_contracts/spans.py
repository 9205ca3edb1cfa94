"""Spans: what each stop did with a request, and for how long. JetStream TRACE, subject `trace.RID`.

A stop sends one `SpanBatch` when it is done with a request. Prompt text never stands in attributes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import WireModel
from baton_contracts.identifiers import RequestId, SubjectToken
from baton_contracts.subjects import Service

AttributeValue = str | bool | int | float | tuple[str, ...]

STOPS: dict[int, str] = {
    1: "app",
    2: "API gateway",
    3: "prompt builder",
    4: "input guardrails",
    5: "LLM gateway",
    6: "inference router",
    7: "inference engine",
    8: "output guardrails",
    9: "stream back",
    10: "after the answer",
}
"""The ten stops of the relay, by number."""


class Span(WireModel):
    span_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    parent_span_id: str | None = Field(default=None, pattern=r"^[0-9a-f]{16}$")
    stop: int = Field(ge=1, le=10, description="Number of the stop, key into STOPS.")
    service: Service
    instance: SubjectToken
    name: str = Field(description="What was done: `handle`, `hop`, `retrieve`, `prefill`, …")
    start: float = Field(description="Unix time in seconds.")
    duration: float = Field(ge=0, description="Seconds.")
    status: Literal["ok", "error", "cancelled"] = "ok"
    attributes: dict[str, AttributeValue] = Field(default_factory=dict)


class SpanBatch(WireModel):
    request_id: RequestId
    tenant_id: str
    spans: tuple[Span, ...]
