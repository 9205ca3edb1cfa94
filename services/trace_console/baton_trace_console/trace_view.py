"""One trace as people and programs read it: batches of spans in, `request_id`, `summary`, `spans` out. Pure.

A trace is shown as far as it is there: stops report when they are done, the last one after the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from baton_common.money import dollars
from baton_contracts.spans import STOPS, AttributeValue, Span, SpanBatch
from baton_trace_console.coverage import Interval, covered_seconds, gaps, intervals_by_stop, largest_gap

_EDGE = (9, 2)
_STREAM_BACK = 9
_AFTER = 10
_GATEWAY = 5
_ENGINE = 7
BOOKS_PATIENCE_SECONDS = 30.0
"""An answer whose stop 10 has not reported for this long will hardly hear of it any more."""
REQUEST_PATIENCE_SECONDS = 330.0
"""The longest a request may be under way, and a little."""
GAP_SECONDS = 0.001
"""Time that no stop accounts for and that is longer than this is told of."""


def merge(batches: Iterable[SpanBatch], tenant_id: str) -> list[Span]:
    """The tenant's spans, each once, by start then stop. Empty: the tenant has no such trace."""
    spans: dict[str, Span] = {}
    for batch in batches:
        if batch.tenant_id == tenant_id:
            for span in batch.spans:
                spans.setdefault(span.span_id, span)
    return sorted(spans.values(), key=lambda span: (span.start, span.stop, -span.duration))


def trace_object(request_id: str, spans: Sequence[Span], now: float) -> dict[str, Any]:
    """`spans` sorted and not empty; `now` in Unix seconds tells a trace under way from one that broke off."""
    start = spans[0].start
    by_stop = intervals_by_stop(spans)
    return {
        "request_id": request_id,
        "summary": _summary(spans, now, by_stop),
        "spans": [_span_object(span, start) for span in spans],
        "gaps": [
            {"start_ms": _ms(since - start), "duration_ms": _ms(until - since)}
            for since, until in gaps(chain.from_iterable(by_stop.values()))
            if until - since > GAP_SECONDS
        ],
    }


def summary(spans: Sequence[Span], now: float) -> dict[str, Any]:
    """The figures of a trace. Times in milliseconds; None where no stop has told. `stop_ms`: how long each
    stop had the request in its own hands; while an answer streams several stops have."""
    return _summary(spans, now, intervals_by_stop(spans))


def _summary(spans: Sequence[Span], now: float, by_stop: Mapping[int, Sequence[Interval]]) -> dict[str, Any]:
    start = spans[0].start
    answered = [span for span in spans if span.stop < _AFTER] or spans
    engine = [span for span in spans if span.stop == _ENGINE]
    return {
        "status": _status(spans, now),
        "started_at": start,
        "total_ms": _ms(max(span.start + span.duration for span in answered) - start),
        "ttft_ms": _attribute(spans, "ttft_ms", (9, 2, 1)),
        "tpot_ms": _attribute(spans, "tpot_ms", (9, 7)),
        "model": _attribute(spans, "model", (7, 5, 9, 6)),
        "replica": engine[-1].instance if engine else _attribute(spans, "replica", (9, 6, 5)),
        "prompt_tokens": _attribute(spans, "prompt_tokens", (7, 9, 10, 5)),
        "completion_tokens": _attribute(spans, "completion_tokens", (7, 9, 10, 5)),
        "cost_usd": _cost(spans),
        "finish_reason": _attribute(spans, "finish_reason", (9, 8, 7)),
        "cache": _attribute(spans, "cache_layer", (_GATEWAY,)),
        "error": _attribute(spans, "error", _EDGE) or _attribute(spans, "reason", _EDGE),
        "error_stop": _error_stop(spans),
        "stops": sorted({span.stop for span in spans}),
        "stop_ms": {str(stop): _ms(covered_seconds(by_stop[stop])) for stop in sorted(by_stop)},
        "unexplained_gap_ms": _ms(largest_gap(chain.from_iterable(by_stop.values()))),
    }


def _attribute(spans: Sequence[Span], name: str, stops: Sequence[int]) -> AttributeValue | None:
    """From the first of `stops` that has it; of several attempts the last one counts."""
    for stop in stops:
        for span in reversed(spans):
            if span.stop == stop and name in span.attributes:
                return span.attributes[name]
    return None


def _cost(spans: Sequence[Span]) -> str | None:
    """Of all attempts together, as the ledger has it."""
    costs = [span.attributes["cost_picos"] for span in spans if "cost_picos" in span.attributes]
    return dollars(sum(cost for cost in costs if isinstance(cost, int))) if costs else None


def _error_stop(spans: Sequence[Span]) -> AttributeValue | None:
    """The service that gave up: as the edge says it, or the last one that failed."""
    failed = [span.service for span in spans if span.status == "error"]
    if "edge_api" not in failed:
        return None  # another attempt went well, or it goes on
    elsewhere = [service for service in failed if service != "edge_api"]
    return _attribute(spans, "error_stop", _EDGE) or [*failed, *elsewhere][-1]


def _status(spans: Sequence[Span], now: float) -> str:
    """ok, error, cancelled; running while reports are due; incomplete when they are overdue."""
    at_edge = [span for span in spans if span.service == "edge_api"]
    outcomes = {span.status for span in at_edge}
    age = now - max(span.start + span.duration for span in spans)
    is_over = any(span.stop == _STREAM_BACK for span in at_edge) or bool(outcomes - {"ok"})
    if not is_over:
        return "running" if age < REQUEST_PATIENCE_SECONDS else "incomplete"
    stops = {span.stop for span in spans}
    is_booked = _ENGINE in stops or (_GATEWAY in stops and outcomes == {"ok"})
    if is_booked and _AFTER not in stops:
        return "running" if age < BOOKS_PATIENCE_SECONDS else "incomplete"
    return next((outcome for outcome in ("error", "cancelled") if outcome in outcomes), "ok")


def _span_object(span: Span, trace_start: float) -> dict[str, Any]:
    return {
        "stop": span.stop,
        "stop_name": STOPS[span.stop],
        "service": span.service,
        "instance": span.instance,
        "name": span.name,
        "start_ms": _ms(span.start - trace_start),
        "duration_ms": _ms(span.duration),
        "status": span.status,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "attributes": span.attributes,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
