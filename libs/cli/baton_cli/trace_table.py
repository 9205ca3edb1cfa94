"""Summaries of traces as tables: one row a request, or what they come to by model. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from baton_cli.terminal import printable
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.spans import STOPS

Summary = Mapping[str, Any]
Traced = Mapping[str, Any]
"""`request_id` and `summary`, as /v1/traces has them."""
_BEFORE_THE_ANSWER = range(2, 8)
"""Stops whose time a request waits for one after another; the later ones are open while it streams."""
DISPENSABLE = ("TPOT", "Tokens", "Most time in", "Model", "TTFT")
DISPENSABLE_OF_MODELS = ("Most time in (mean)", "TPOT p95", "TPOT p50", "TTFT p95", "Total p95")
"""Heads of what a narrow terminal goes without, first ones first."""
_FIGURES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "total_ms": "Total"}


def traces_table(traces: Sequence[Traced]) -> Table:
    table = Table("Request", "When", "Status", "Model", box=None, header_style="bold")
    for head in (*_FIGURES.values(), "Tokens"):
        table.add_column(head, justify="right")
    table.add_column("Most time in")
    table.columns[0].no_wrap = True
    for traced in traces:
        told = traced["summary"]
        when = datetime.fromtimestamp(float(told["started_at"])).astimezone()
        table.add_row(
            str(traced["request_id"]),
            f"{when:%m-%d %H:%M:%S}",
            printable(status_text(told)),
            printable(str(told.get("model") or "")),
            *(_ms(told.get(name)) for name in _FIGURES),
            str(told.get("completion_tokens") or ""),
            slowest_stop(told),
        )
    return table


def status_text(told: Summary) -> str:
    """`ok`, or `error: queue_full at inference_router`."""
    what = ": ".join(filter(None, [str(told.get("status")), str(told.get("error") or "")]))
    return f"{what} at {told['error_stop']}" if told.get("error_stop") else what


def slowest_stop(told: Summary) -> str:
    """Of those that a request passes before its answer begins."""
    times = {int(stop): float(ms) for stop, ms in (told.get("stop_ms") or {}).items()}
    waited = {stop: ms for stop, ms in times.items() if stop in _BEFORE_THE_ANSWER}
    if not waited:
        return ""
    stop = max(waited, key=lambda each: waited[each])
    return f"{stop} {STOPS[stop]}, {_ms(waited[stop])}"


def by_model(traces: Sequence[Traced]) -> list[dict[str, Any]]:
    """Busiest first: `model`, `requests`, `failed`, percentiles of each figure (ms), means of `stop_ms`."""
    told: dict[str, list[Summary]] = defaultdict(list)
    for traced in traces:
        told[str(traced["summary"].get("model") or "")].append(traced["summary"])
    rows = [_of_model(model, summaries) for model, summaries in told.items()]
    return sorted(rows, key=lambda row: -row["requests"])


def _of_model(model: str, told: Sequence[Summary]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": model,
        "requests": len(told),
        "failed": sum(one["status"] == "error" for one in told),
    }
    for name in _FIGURES:
        values = sorted(float(one[name]) for one in told if one.get(name) is not None)
        row[name] = {"p50": percentile(values, 50), "p95": percentile(values, 95)} if values else None
    stops: dict[str, list[float]] = defaultdict(list)
    for one in told:
        for stop, ms in (one.get("stop_ms") or {}).items():
            stops[stop].append(float(ms))
    row["stop_ms"] = {stop: round(math.fsum(times) / len(times), 3) for stop, times in stops.items()}
    return row


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Of values in order, at least one: the smallest that so many per cent do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def models_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("Model", box=None, header_style="bold")
    heads = [f"{head} {rank}" for head in _FIGURES.values() for rank in ("p50", "p95")]
    for head in ("Requests", "Failed", *heads):
        table.add_column(head, justify="right")
    table.add_column("Most time in (mean)")
    for row in rows:
        figures = [_ms((row[name] or {}).get(rank)) for name in _FIGURES for rank in ("p50", "p95")]
        model = printable(row["model"]) or "none was reached"
        table.add_row(model, str(row["requests"]), str(row["failed"]), *figures, slowest_stop(row))
    return table


def replicas_table(beats: Sequence[ReplicaHeartbeat]) -> Table:
    table = Table("Replica", "Model", "State", box=None, header_style="bold")
    for head in ("Running", "Waiting", "KV cache", "Tokens/s"):
        table.add_column(head, justify="right")
    for beat in sorted(beats, key=lambda beat: (beat.model, beat.replica)):
        load = (f"{beat.num_running} of {beat.max_running}", str(beat.num_waiting), f"{beat.kv_usage:.0%}")
        table.add_row(beat.replica, beat.model, beat.state, *load, f"{beat.tokens_per_second:.0f}")
    return table


def _ms(value: Any) -> str:
    if value is None:
        return ""
    return f"{value / 1000:,.2f} s" if value >= 1000 else f"{value:.1f} ms"
