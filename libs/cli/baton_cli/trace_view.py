"""A trace as the console gives it, checked, and what can be read off it: order, gaps, missing stops. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from baton_cli.errors import CliError
from baton_contracts.spans import STOPS

GAP_MS = 1.0
"""Time that no stop accounts for and that is longer than this is marked."""

_WHOLE = 0.98
"""A span of the app or the edge that covers this part of the trace explains nothing by itself."""


@dataclass(frozen=True)
class SpanView:
    stop: int
    service: str
    name: str
    start_ms: float
    """From the start of the trace."""
    duration_ms: float
    status: str = "ok"
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
        """Stretches longer than GAP_MS in which no stop says that it was at work."""
        telling = [span for span in self.spans if not self._is_whole(span)]
        edges = [(span.start_ms, span.end_ms) for span in telling] + [(self.total_ms, self.total_ms)]
        found: list[Gap] = []
        covered_to = 0.0
        for start_ms, end_ms in sorted(edges):
            if start_ms - covered_to > GAP_MS:
                found.append(Gap(covered_to, start_ms))
            covered_to = max(covered_to, end_ms)
        return tuple(found)

    def _is_whole(self, span: SpanView) -> bool:
        return span.stop == 1 or (span.stop in (2, 9) and span.duration_ms >= _WHOLE * self.total_ms)


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
        attributes=cast("Mapping[str, Any]", item.get("attributes") or {}),
    )
