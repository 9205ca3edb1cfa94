"""Spans of stop 10, from a record and the times it was stored, taken and committed. No I/O.

A span's id follows from what it tells of, so a record that is delivered twice shows up once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from baton_after_answer.records import Record
from baton_contracts.records import ResponseRecord, UsageRecord
from baton_contracts.spans import AttributeValue, Span, SpanBatch

_STOP = 10


def span_batches(
    records: Iterable[tuple[Record, float]], *, instance: str, taken_at: float, committed_at: float
) -> list[SpanBatch]:
    """One batch for each request and tenant among `records`, each with the time at which it was stored."""
    spans: dict[tuple[str, str], list[Span]] = {}
    for record, stored_at in records:
        key = (record.request_id, record.tenant.tenant_id)
        spans.setdefault(key, []).extend(_spans(record, instance, stored_at, taken_at, committed_at))
    return [
        SpanBatch(request_id=request_id, tenant_id=tenant_id, spans=tuple(found))
        for (request_id, tenant_id), found in spans.items()
    ]


def _spans(
    record: Record, instance: str, stored_at: float, taken_at: float, committed_at: float
) -> tuple[Span, Span]:
    name = "ledger" if isinstance(record, UsageRecord) else record.kind
    stored_at = min(stored_at, taken_at)
    own_id = _span_id(record, name)
    written = Span(
        span_id=own_id,
        stop=_STOP,
        service="after_answer",
        instance=instance,
        name=name,
        start=taken_at,
        duration=max(0.0, committed_at - taken_at),
        attributes=_attributes(record),
    )
    waited = Span(
        span_id=_span_id(record, f"{name}/queue"),
        parent_span_id=own_id,
        stop=_STOP,
        service="after_answer",
        instance=instance,
        name="queue",
        start=stored_at,
        duration=taken_at - stored_at,
        attributes={"record": name},
    )
    return waited, written


def _attributes(record: Record) -> dict[str, AttributeValue]:
    if isinstance(record, UsageRecord):
        return {
            "attempt": record.attempt,
            "outcome": record.outcome,
            "cost_picos": record.cost_picos or 0,
            "prompt_tokens": record.usage.prompt_tokens,
            "cached_tokens": record.usage.cached_tokens,
            "completion_tokens": record.usage.completion_tokens,
        }
    if isinstance(record, ResponseRecord):
        return {"status": record.status, "continues": record.previous_response_id is not None}
    return {"cut_short": record.cut_short, "messages": len(record.asked)}


def _span_id(record: Record, name: str) -> str:
    attempt = record.attempt if isinstance(record, UsageRecord) else 0
    identity = f"{record.request_id}/{record.run_id}/{attempt}/{name}"
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
