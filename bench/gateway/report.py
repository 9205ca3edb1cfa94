"""The table of a run and the file that keeps it: bench/results/gateway.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.gateway.measures import Row

RESULTS = Path(__file__).parents[1] / "results" / "gateway.json"


@dataclass
class Results:
    command: str
    machine: dict[str, object]
    load_average: float
    rows: list[Row] = field(default_factory=list[Row])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """Systems that could not be measured here, with the reason."""

    def write(self) -> None:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(asdict(self), indent=2) + "\n")

    def row(self, system: str) -> Row | None:
        return next((row for row in self.rows if row.system == system), None)


_COLUMNS = {
    "added p50 ms": lambda row: f"{row.added_p50_ms:.2f}",
    "p99": lambda row: f"{row.added_p99_ms:.2f}",
    "requests/s": lambda row: f"{row.requests_per_s:.0f}",
    "streams/s": lambda row: f"{row.streams_per_s:.0f}",
    "TTFT ms": lambda row: f"{row.stream_ttft_ms:.1f}",
    "events": lambda row: f"{row.events_per_stream:.0f}",
    "MB": lambda row: f"{row.memory_mb:.0f}",
    "gap ms": lambda row: f"{row.paced_longest_gap_ms:.0f}",
    "open MB": lambda row: f"{row.paced_memory_mb:.0f}",
}


def table(results: Results) -> str:
    lines = [f"{'':34}" + "".join(f"{name:>14}" for name in _COLUMNS)]
    for row in results.rows:
        name = f"{row.system} (its own times)" if row.system == "upstream" else row.system
        lines.append(f"{name:34}" + "".join(f"{shown(row):>14}" for shown in _COLUMNS.values()))
    lines += [f"{name:34}missing: {reason}" for name, reason in results.missing.items()]
    return "\n".join([*lines, *_ratios(results)])


def _ratios(results: Results) -> list[str]:
    peer = results.row("litellm")
    if peer is None:
        return []
    lines = [""]
    for name in ("baton", "baton, ten stops"):
        ours = results.row(name)
        if ours:
            lines.append(
                f"{name} to litellm: added p50 × {ours.added_p50_ms / peer.added_p50_ms:.2f}, "
                f"p99 × {ours.added_p99_ms / peer.added_p99_ms:.2f}, "
                f"requests/s × {ours.requests_per_s / peer.requests_per_s:.1f}, "
                f"streams/s × {ours.streams_per_s / peer.streams_per_s:.1f}"
            )
    return lines
