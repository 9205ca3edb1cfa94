"""`make bench-routing`: four ways to choose a replica, side by side.

Simulated replicas (4, 64 and 1,000) first, then real ones: engine workers with SmolLM2-135M on this machine,
over NATS. Prints the tables; writes bench/results/routing.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path

from bench.peers.machine import describe, neighbours
from bench.routing.policies import POLICIES
from bench.routing.real import RealLoad, measure
from bench.routing.refusals import measure_refusals
from bench.routing.simulation import Simulation
from bench.routing.traffic import LOADS, arrivals

RESULTS = Path(__file__).parents[1] / "results" / "routing.json"
SIMULATED = {4: 2000, 64: 6000, 1000: 2000}
QUICK = {4: 600, 64: 1500}
LOADS_AT_1000 = ("shared", "cold")
Row = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-routing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests, and not 1,000 replicas")
    parser.add_argument("--replicas", type=int, default=4, help="real ones; 0: simulate only")
    parser.add_argument("--only-real", action="store_true")
    options = parser.parse_args()
    if not options.only_real:
        simulate(QUICK if options.quick else SIMULATED)
    if options.replicas:
        with neighbours() as others:
            load = RealLoad(options.replicas)
            real = asyncio.run(measure(load.quick() if options.quick else load))
            refusals = asyncio.run(measure_refusals())
        print_table(real)
        print_table([refusals])
        around = {"cores": others.cores, "load_average": others.load_average}
        keep({"real": real, "refusals": refusals, "neighbours": around, "machine": describe()})


def keep(found: dict[str, object]) -> None:
    """Beside what an earlier run of the other half found."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept |= {"command": "python -m bench.routing"} | found
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def simulate(sizes: dict[int, int]) -> None:
    rows: list[Row] = []
    for num_replicas, count in sizes.items():
        for load in LOADS_AT_1000 if num_replicas == 1000 else LOADS:
            traffic = arrivals(load, num_replicas, count)
            begun = len(rows)
            for name, pick in POLICIES.items():
                started = time.perf_counter()
                row = Simulation(pick, num_replicas).run(traffic).row()
                seconds = round(time.perf_counter() - started, 1)
                rows.append(
                    {"replicas": num_replicas, "load": load, "policy": name, **row, "took_s": seconds}
                )
            print_table(rows[begun:])
            keep({"simulated": rows})


def print_table(rows: list[Row]) -> None:
    names = list(rows[0])
    print("\n" + "  ".join(f"{name:>12}" for name in names))
    for row in rows:
        print("  ".join(f"{row[name]!s:>12}" for name in names))


if __name__ == "__main__":
    main()
