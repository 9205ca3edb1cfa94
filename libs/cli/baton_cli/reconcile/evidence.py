"""What each witness says of the same requests: the ledger, the traces, the engines' own counters. Pure.

A trace is read for what an engine and an edge say of a request, each in the span with which it lets it go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.records import UsageRecord
from baton_contracts.spans import AttributeValue, Span, SpanBatch

_GATEWAY, _ENGINE, _STREAM_BACK = 5, 7, 9


@dataclass(frozen=True)
class EngineRun:
    """An attempt as the engine that ran it tells it."""

    request_id: str
    attempt: int
    replica: str
    prompt_tokens: int
    completion_tokens: int
    """Added by this attempt."""
    ended_at: float


@dataclass(frozen=True)
class TheClient:
    """What a client was told that its answer cost."""

    request_id: str
    prompt_tokens: int
    completion_tokens: int
    ended_at: float
    other_request_ids: tuple[str, ...] = ()
    """A completion of several prompts is one answer to several requests."""


@dataclass
class Evidence:
    rows: list[UsageRecord] = field(default_factory=list[UsageRecord])
    runs: list[EngineRun] = field(default_factory=list[EngineRun])
    clients: list[TheClient] = field(default_factory=list[TheClient])
    replicas: list[ReplicaHeartbeat] = field(default_factory=list[ReplicaHeartbeat])
    tenants: set[str] = field(default_factory=set[str])
    given_up: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """Request and attempt: its gateway gave it up before it heard that a replica had taken it."""
    unheard: set[str] = field(default_factory=set[str])
    """Requests whose gateway never heard the engine's own count."""
    spans_dropped: dict[str, int] = field(default_factory=dict[str, int])
    """Batches, by the instance that had to drop them: of these requests a trace may be missing."""
    _batches: set[str] = field(default_factory=set[str])
    """What was added, by the id of its first span: behind an outage the same batch may be stored twice."""

    def add_spans(self, batch: SpanBatch) -> None:
        if not batch.spans or batch.spans[0].span_id in self._batches:
            return
        self._batches.add(batch.spans[0].span_id)
        self.tenants.add(batch.tenant_id)
        for span in batch.spans:
            if span.stop == _ENGINE and span.name == "handle" and "completion_tokens" in span.attributes:
                self.runs.append(_engine_run(batch.request_id, span))
            elif (
                span.stop == _GATEWAY and span.name == "attempt" and span.attributes.get("replica") == "none"
            ):
                self.given_up.add((batch.request_id, _number(span.attributes.get("attempt"))))
            elif (
                span.stop == _GATEWAY and span.name == "handle" and "completion_tokens" not in span.attributes
            ):
                self.unheard.add(batch.request_id)
            elif span.stop == _STREAM_BACK and span.status == "ok" and "completion_tokens" in span.attributes:
                self.clients.append(
                    TheClient(
                        request_id=batch.request_id,
                        prompt_tokens=_number(span.attributes.get("prompt_tokens")),
                        completion_tokens=_number(span.attributes["completion_tokens"]),
                        ended_at=span.start + span.duration,
                        other_request_ids=_names(span.attributes.get("other_request_ids")),
                    )
                )


def _engine_run(request_id: str, span: Span) -> EngineRun:
    told = span.attributes
    return EngineRun(
        request_id=request_id,
        attempt=_number(told.get("attempt")) or 1,
        replica=span.instance,
        prompt_tokens=_number(told.get("prompt_tokens")),
        completion_tokens=_number(told["completion_tokens"]) - _number(told.get("resumed_tokens")),
        ended_at=span.start + span.duration,
    )


def _number(value: AttributeValue | None) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _names(value: AttributeValue | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def newest(beats: Iterable[ReplicaHeartbeat]) -> list[ReplicaHeartbeat]:
    """The last word of each replica."""
    last: dict[str, ReplicaHeartbeat] = {}
    for beat in sorted(beats, key=lambda beat: beat.sent_at):
        last[beat.replica] = beat
    return [beat for beat in last.values() if beat.state != "gone"]
