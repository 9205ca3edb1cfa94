"""A trace as a waterfall of text: one row a span, its bar on the axis that all rows share. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from baton_cli.trace_table import status_text
from baton_cli.trace_view import SpanView, TraceView
from baton_contracts.spans import STOPS

_SERVICE_WIDTH = 18
_NAME_WIDTH = 20
_FIXED_WIDTH = 4 + _SERVICE_WIDTH + 1 + _NAME_WIDTH + 1 + 11
_MIN_BAR_WIDTH = 16
_COLOURS = ("white", "cyan", "green", "yellow", "blue", "magenta", "red", "bright_yellow", "cyan", "green")


def waterfall(trace: TraceView, width: int, until_ms: float | None = None) -> list[Text]:
    """Lines of at most `width` columns (or the narrowest that a bar needs).

    With `until_ms` the axis ends there, and spans that begin later are left out.
    """
    bar_width = max(_MIN_BAR_WIDTH, width - _FIXED_WIDTH)
    axis_ms = min(until_ms or trace.total_ms, trace.total_ms)
    shown = [span for span in trace.spans if span.start_ms <= axis_ms]
    lines = [Text(f"Trace {trace.request_id}", style="bold"), _axis(axis_ms, bar_width)]
    shown_stop = 0
    for span in shown:
        lines.append(_row(span, axis_ms, bar_width, first=span.stop != shown_stop))
        shown_stop = span.stop
    lines.append(Text())
    if left_out := len(trace.spans) - len(shown):
        lines.append(Text(f"{left_out} spans begin after {axis_ms:g} ms", style="dim"))
    lines.extend(_gaps(trace))
    if trace.missing_stops:
        names = ", ".join(f"{stop} ({STOPS[stop]})" for stop in trace.missing_stops)
        lines.append(Text(f"No span of stop {names}", style="yellow"))
    lines.append(Text(totals(trace), style="bold"))
    return lines


def bar(start_ms: float, duration_ms: float, total_ms: float, width: int) -> str:
    """`width` columns, drawn to half a column; what happened at all shows at least one mark."""
    if total_ms <= 0:
        return " " * width
    halves = 2 * width
    first = min(int(start_ms / total_ms * halves), halves - 1)
    last = min(max(round((start_ms + duration_ms) / total_ms * halves), first + 1), halves)
    filled = [first <= half < last for half in range(halves)]
    return "".join(_CELL[filled[2 * column], filled[2 * column + 1]] for column in range(width))


_CELL = {(False, False): " ", (True, False): "▌", (False, True): "▐", (True, True): "█"}


def totals(trace: TraceView) -> str:
    """TTFT and TPOT first, as everything is judged by them."""
    summary = trace.summary
    parts = [
        _figure("TTFT", summary.get("ttft_ms"), "ms"),
        _figure("TPOT", summary.get("tpot_ms"), "ms"),
        _figure("total", summary.get("total_ms", trace.total_ms), "ms"),
        _plain("prompt", summary.get("prompt_tokens"), "tokens"),
        _plain("answer", summary.get("completion_tokens"), "tokens"),
        _plain("cost $", summary.get("cost_usd")).replace("$ ", "$"),
        _plain("model", summary.get("model")),
        _plain("on", summary.get("replica")),
        _plain("finish", summary.get("finish_reason")),
        _plain("from the cache,", summary.get("cache")),
        _plain("status", status_text(summary) if summary.get("status") else None),
    ]
    return " · ".join(part for part in parts if part)


def _axis(total_ms: float, bar_width: int) -> Text:
    """Numbers at the start, the middle and the end of the bars."""
    middle, end = f"{total_ms / 2:.0f}", f"{total_ms:.0f} ms"
    ruler = f"{'0':<{bar_width // 2}}{middle}"
    ruler = f"{ruler:<{max(len(ruler), bar_width - len(end))}}{end}"
    heads = f"{'':<4}{'stop':<{_SERVICE_WIDTH}} {'span':<{_NAME_WIDTH}} "
    return Text(f"{heads}{ruler:<{bar_width}} {'ms':>10}", style="dim")


def _row(span: SpanView, total_ms: float, bar_width: int, *, first: bool) -> Text:
    colour = "bold red" if span.status == "error" else _COLOURS[(span.stop - 1) % len(_COLOURS)]
    number = f"{span.stop:>2}  " if first else "    "
    name = span.name if span.status == "ok" else f"{span.name} ({span.status})"
    return Text.assemble(
        (number, "bold"),
        f"{span.service[:_SERVICE_WIDTH]:<{_SERVICE_WIDTH}} ",
        f"{name[:_NAME_WIDTH]:<{_NAME_WIDTH}} ",
        (bar(span.start_ms, span.duration_ms, total_ms, bar_width), colour),
        f" {span.duration_ms:>10,.2f}",
    )


def _gaps(trace: TraceView) -> Iterator[Text]:
    for gap in trace.gaps:
        place = f"{gap.start_ms:.1f} to {gap.end_ms:.1f} ms"
        yield Text(f"Gap of {gap.duration_ms:.1f} ms: no stop accounts for {place}", style="red")


def _figure(name: str, value: Any, unit: str) -> str:
    return f"{name} {value:,.1f} {unit}" if isinstance(value, int | float) else ""


def _plain(name: str, value: Any, unit: str = "") -> str:
    return f"{name} {value} {unit}".rstrip() if value is not None and value != "" else ""
