"""Results as data and as a table, and how Baton stands to each peer. Knows no server and measures nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.weights import DEFAULT_MODEL

RESULTS = Path(__file__).parents[1] / "results"
OURS = "baton"
Row = dict[str, Any]


@dataclass
class Results:
    model: str
    command: str
    machine: dict[str, object]
    load_average: float
    rows: list[Row] = field(default_factory=list[Row])
    prefix: list[Row] = field(default_factory=list[Row])
    gap: list[Row] = field(default_factory=list[Row])
    neighbours: list[Row] = field(default_factory=list[Row])
    missing: list[Row] = field(default_factory=list[Row])

    def write(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        name = "peers.json" if self.model == DEFAULT_MODEL else f"peers-{self.model}.json"
        (RESULTS / name).write_text(json.dumps(vars(self) | {"ratios": list(ratios(self))}, indent=2) + "\n")


def ratios(results: Results) -> Iterator[Row]:
    """Baton's best precision over each peer's best, for each figure: over 1 is more, not always better."""
    peers = sorted(
        {row["engine"] for row in results.rows} - {OURS}
    )  # the relay too: what the other stops cost
    widths = sorted({row["concurrency"] for row in results.rows})
    for peer in peers:
        for width in widths:
            ours = [row for row in results.rows if row["engine"] == OURS and row["concurrency"] == width]
            theirs = [row for row in results.rows if row["engine"] == peer and row["concurrency"] == width]
            if ours and theirs:
                yield {
                    "peer": peer,
                    "concurrency": width,
                    "output_tps": _ratio(_best(ours, "output_tps", max), _best(theirs, "output_tps", max)),
                    "ttft": _ratio(_best(ours, "ttft_p50_ms", min), _best(theirs, "ttft_p50_ms", min)),
                    "tpot": _ratio(_best(ours, "tpot_p50_ms", min), _best(theirs, "tpot_p50_ms", min)),
                }


def _best(rows: list[Row], figure: str, choose: Any) -> float:
    return float(choose(row[figure] for row in rows))


def _ratio(ours: float, theirs: float) -> float:
    return round(ours / theirs, 2)


def table(results: Results) -> str:
    lines = [
        "",
        f"{results.model}: 512 random prompt tokens in, 128 out, greedy, closed loop",
        f"{'engine':14}{'precision':11}{'clients':>8}{'tokens/s':>10}{'TTFT p50 ms':>13}{'TPOT p50 ms':>13}",
    ]
    lines += [
        f"{row['engine']:14}{row['precision']:11}{row['concurrency']:8}{row['output_tps']:10.1f}"
        f"{row['ttft_p50_ms']:13.1f}{row['tpot_p50_ms']:13.1f}"
        for row in results.rows
    ]
    lines += [
        "",
        "Shared prefix of 1,024 tokens: TTFT p50, ms",
        f"{'':25}{'cold':>10}{'warm':>10}{'warm/cold':>12}",
    ]
    lines += [
        f"{_label(row):25}{row['cold_ttft_p50_ms']:10.1f}{row['warm_ttft_p50_ms']:10.1f}{row['warm_over_cold']:12.3f}"
        for row in results.prefix
    ]
    lines += ["", "A 2,000-token prompt beside 4 streams, ms", f"{'':25}{'longest gap':>13}{'its TTFT':>12}"]
    lines += [
        f"{_label(row):25}{row['longest_gap_p50_ms']:13.1f}{row['long_prompt_ttft_p50_ms']:12.1f}"
        for row in results.gap
    ]
    lines += [
        "",
        "Baton's best over the peer's best",
        f"{'':14}{'clients':>8}{'tokens/s':>10}{'TTFT':>8}{'TPOT':>8}",
    ]
    lines += [
        f"{row['peer']:14}{row['concurrency']:8}{row['output_tps']:10.2f}{row['ttft']:8.2f}{row['tpot']:8.2f}"
        for row in ratios(results)
    ]
    lines += ["", "Cores that others took meanwhile"]
    lines += [
        f"{_label(row):25}{row['cores']!s:>8}  load average {row['load_average']}"
        for row in results.neighbours
    ]
    lines += [f"missing: {_label(row)}: {row['reason']}" for row in results.missing]
    return "\n".join(lines) + "\n"


def _label(row: Row) -> str:
    return f"{row['engine']:14}{row['precision']}"
