"""`make bench-routing`: four ways to choose a replica, side by side.

Simulated replicas (4, 64 and 1,000) first, then real ones: engine workers with SmolLM2-135M on this machine,
over NATS. Prints the tables; writes bench/results/routing.json. Simulated times are means over several seeds;
`p50_to_ll` and `p99_to_ll` are the worst of them beside least-loaded's. `choosing_us`: CPU of a choice; real
ones: until the replica has it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.peers.machine import describe, neighbours
from bench.routing.policies import POLICIES
from bench.routing.real import RealLoad, measure
from bench.routing.refusals import measure_refusals
from bench.routing.shared_machine import Slowness, own_cores, shared_cores
from bench.routing.simulation import Simulation
from bench.routing.traffic import LOADS, arrivals

RESULTS = Path(__file__).parents[1] / "results" / "routing.json"
REAL_LOADS = ("shared", "cold")
Row = dict[str, object]


@dataclass(frozen=True)
class Case:
    """`cores`: which all replicas share, at half the rate, with neighbours that triple the time of everything
    now and then; 0: one for each, and no neighbours."""

    num_replicas: int
    load: str
    count: int
    seeds: int
    cores: int = 0

    @property
    def name(self) -> str:
        return f"{self.load}, {self.cores} cores" if self.cores else self.load

    def slowness(self, seed: int) -> Slowness:
        return shared_cores(self.cores, 3.0, seed) if self.cores else own_cores


CASES = (
    *(Case(4, load, 1500, 5) for load in LOADS),
    Case(4, "cold", 1500, 5, cores=2),
    *(Case(64, load, 3000, 2) for load in LOADS),
    *(Case(1000, load, 1000, 1) for load in ("shared", "cold")),
)
QUICK = (*(Case(4, load, 600, 2) for load in LOADS), *(Case(64, load, 1500, 1) for load in LOADS))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-routing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests, and not 1,000 replicas")
    parser.add_argument("--replicas", type=int, default=4, help="real ones; 0: simulate only")
    parser.add_argument("--only-real", action="store_true")
    parser.add_argument("--real-loads", nargs="+", default=REAL_LOADS, choices=REAL_LOADS)
    options = parser.parse_args()
    if not options.only_real:
        simulate(QUICK if options.quick else CASES)
    if options.replicas:
        with neighbours() as others:
            load = RealLoad(options.replicas)
            real = asyncio.run(measure(load.quick() if options.quick else load, options.real_loads))
            refusals = asyncio.run(measure_refusals())
        print_table(real)
        print_table([refusals])
        around = {"cores": others.cores, "load_average": others.load_average}
        real = beside_others("real", real)
        keep({"real": real, "refusals": refusals, "neighbours": around, "machine": describe()})


def kept() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(found: dict[str, object]) -> None:
    """Beside what earlier runs of the other half found."""
    all_found = kept() | {"command": "python -m bench.routing"} | found
    RESULTS.write_text(json.dumps(all_found, indent=1, ensure_ascii=False) + "\n")


def beside_others(half: str, rows: list[Row]) -> list[Row]:
    """With the rows of other loads that an earlier run found, so that one that is broken off loses none."""
    ours = {(row["replicas"], row["load"]) for row in rows}
    others: list[Row] = [row for row in kept().get(half, []) if (row["replicas"], row["load"]) not in ours]
    return others + rows


def simulate(cases: Sequence[Case]) -> None:
    for case in cases:
        of_case = compare(case)
        print_table(of_case)
        keep({"simulated": beside_others("simulated", of_case)})


def compare(case: Case) -> list[Row]:
    of_policy = {name: list[dict[str, float | int]]() for name in POLICIES}
    for seed in range(1, case.seeds + 1):
        traffic = arrivals(case.load, case.num_replicas, case.count, seed, 0.5 if case.cores else 1.0)
        for name, pick in POLICIES.items():
            outcome = Simulation(pick, case.num_replicas, case.slowness(seed)).run(traffic)
            of_policy[name].append(outcome.row())
    begins = {"replicas": case.num_replicas, "load": case.name, "seeds": case.seeds}
    beside = of_policy["least loaded"]
    return [
        {**begins, "policy": name, **means(found), **worst(found, beside)}
        for name, found in of_policy.items()
    ]


def means(found: list[dict[str, float | int]]) -> Row:
    return {key: round(fmean(row[key] for row in found), 3) for key in found[0]}


def worst(found: list[dict[str, float | int]], beside: list[dict[str, float | int]]) -> Row:
    def ratio(key: str) -> float:
        return round(max(mine[key] / theirs[key] for mine, theirs in zip(found, beside, strict=True)), 3)

    return {"p50_to_ll": ratio("ttft_p50_ms"), "p99_to_ll": ratio("ttft_p99_ms")}


def print_table(rows: Sequence[Mapping[str, object]]) -> None:
    names = list(rows[0])
    print("\n" + "  ".join(f"{name:>12}" for name in names))
    for row in rows:
        print("  ".join(f"{row[name]!s:>12}" for name in names))


if __name__ == "__main__":
    main()
