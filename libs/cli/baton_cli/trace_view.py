"""A trace as the console gives it, checked, and what can be read off it: order, gaps, missing stops. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from baton_cli.errors import CliError
from baton_contracts.spans import STOPS


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
    """Time that no stop accounts for, as the console found it."""

    start_ms: float
    duration_ms: float

    @property
    def end_ms(self) -> float:
        return self.start_ms + self.duration_ms


@dataclass(frozen=True)
class TraceView:
    request_id: str
    spans: tuple[SpanView, ...]
    """By stop, then by start."""
    total_ms: float
    summary: Mapping[str, Any]
    gaps: tuple[Gap, ...] = ()

    @property
    def missing_stops(self) -> tuple[int, ...]:
        seen = {span.stop for span in self.spans}
        return tuple(stop for stop in STOPS if stop not in seen)


def parse_trace(body: Mapping[str, Any]) -> TraceView:
    """Raises CliError if `body` is not a trace."""
    try:
        spans = [_span(item) for item in cast("list[Mapping[str, Any]]", body["spans"])]
        gaps = [_gap(item) for item in cast("list[Mapping[str, Any]]", body.get("gaps") or [])]
        request_id = str(body["request_id"])
    except (KeyError, TypeError, ValueError) as error:
        raise CliError(f"The edge's answer is not a trace: {error!r}") from error
    ordered = tuple(sorted(spans, key=lambda span: (span.stop, span.start_ms)))
    total_ms = max((span.end_ms for span in ordered), default=0.0)
    summary = cast("Mapping[str, Any]", body.get("summary") or {})
    return TraceView(request_id, ordered, total_ms, summary, tuple(gaps))


def _gap(item: Mapping[str, Any]) -> Gap:
    return Gap(float(item["start_ms"]), float(item["duration_ms"]))


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
