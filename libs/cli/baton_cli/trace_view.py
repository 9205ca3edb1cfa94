"""A trace as the console gives it, checked, and what can be read off it: order, gaps, missing stops. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from baton_cli.errors import CliError
from baton_contracts.spans import STOPS

GAP_MS = 1.0
"""Time that no stop accounts for and that is longer than this is marked."""


@dataclass(frozen=True)
class SpanView:
    stop: int
    service: str
    name: str
    start_ms: float
    """From the start of the trace."""
    duration_ms: float
    status: str = "ok"
    span_id: str = ""
    parent_span_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def end_ms(self) -> float:
        return self.start_ms + self.duration_ms

    @property
    def stop_name(self) -> str:
        return STOPS.get(self.stop, "?")


@dataclass(frozen=True)
class Gap:
    start_ms: float
    end_ms: float

    @property
    def duration_ms(self) -> float:
        return self.end_ms - self.start_ms


@dataclass(frozen=True)
class TraceView:
    request_id: str
    spans: tuple[SpanView, ...]
    """By stop, then by start."""
    total_ms: float
    summary: Mapping[str, Any]

    @property
    def missing_stops(self) -> tuple[int, ...]:
        seen = {span.stop for span in self.spans}
        return tuple(stop for stop in STOPS if stop not in seen)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Stretches longer than GAP_MS in which no stop says that it had the request in hand.

        A span that handed the request on explains the time until then and the time after all came back, not
        what lies between: one long span around everything hides nothing.
        """
        told = [stretch for span in self.spans for stretch in self._in_hand(span)]
        found: list[Gap] = []
        covered_to = 0.0
        for start_ms, end_ms in sorted([*told, (self.total_ms, self.total_ms)]):
            if start_ms - covered_to > GAP_MS:
                found.append(Gap(covered_to, start_ms))
            covered_to = max(covered_to, end_ms)
        return tuple(found)

    def _in_hand(self, span: SpanView) -> list[tuple[float, float]]:
        later = [other for other in self._below(span) if other.stop > span.stop]
        if not later:
            return [(span.start_ms, span.end_ms)]
        gone_ms = min(other.start_ms for other in later)
        back_ms = max(other.end_ms for other in later)
        before = (span.start_ms, min(gone_ms, span.end_ms))
        return [before, (back_ms, span.end_ms)] if back_ms < span.end_ms else [before]

    def _below(self, span: SpanView) -> list[SpanView]:
        """Everything that descends from `span`; parents that form a ring are walked once."""
        found: dict[str, SpanView] = {}
        parents = [span.span_id] if span.span_id else []
        while parents:
            children = [other for other in self.spans if other.parent_span_id == parents[-1]]
            parents.pop()
            for child in children:
                if child.span_id not in found and child.span_id != span.span_id:
                    found[child.span_id] = child
                    parents.append(child.span_id)
        return list(found.values())


def parse_trace(body: Mapping[str, Any]) -> TraceView:
    """Raises CliError if `body` is not a trace."""
    try:
        spans = [_span(item) for item in cast("list[Mapping[str, Any]]", body["spans"])]
        request_id = str(body["request_id"])
    except (KeyError, TypeError, ValueError) as error:
        raise CliError(f"The edge's answer is not a trace: {error!r}") from error
    ordered = tuple(sorted(spans, key=lambda span: (span.stop, span.start_ms)))
    total_ms = max((span.end_ms for span in ordered), default=0.0)
    return TraceView(request_id, ordered, total_ms, cast("Mapping[str, Any]", body.get("summary") or {}))


def _span(item: Mapping[str, Any]) -> SpanView:
    return SpanView(
        stop=int(item["stop"]),
        service=str(item["service"]),
        name=str(item["name"]),
        start_ms=max(0.0, float(item["start_ms"])),
        duration_ms=max(0.0, float(item["duration_ms"])),
        status=str(item.get("status", "ok")),
        span_id=str(item.get("span_id") or ""),
        parent_span_id=item.get("parent_span_id"),
        attributes=cast("Mapping[str, Any]", item.get("attributes") or {}),
    )
