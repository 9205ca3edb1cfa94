"""`make bench-peers`: Baton's engine and its peers, one at a time, under the same load.

Installs each peer into an environment of its own under $BATON_HOME/bench (first run: minutes), starts it,
warms it up, measures, ends it. Prints a table and writes bench/results/peers.json (peers-MODEL.json for
another model than the default). What can't be had here is reported as missing, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from baton_cli.home import Home
from baton_common.catalog import load_catalog
from bench.peers import machine, report
from bench.peers.environments import Missing
from bench.peers.load_client import LoadFailed
from bench.peers.measures import FULL, QUICK, Measured, Plan, measure
from bench.peers.servers import ENGINES, Engine, Place, running
from bench.peers.weights import DEFAULT_MODEL

SEED = 20_261
NAMES = sorted({engine.name for engine in ENGINES})


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="concurrency 1 and 8, fewer requests")
    parser.add_argument("--engines", type=_engines, default=ENGINES, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--concurrency", type=_widths, help="only these, as 1,8,16")
    parser.add_argument("--model", default=DEFAULT_MODEL, choices=sorted(load_catalog().models))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a server must not outlive its benchmark
    plan = QUICK if options.quick else FULL
    if options.concurrency:
        known = FULL.requests | plan.requests
        plan = replace(plan, requests={width: known[width] for width in options.concurrency})
    place = Place(Home.from_environment(os.environ).root, options.model)
    results = report.Results(
        model=options.model,
        command=f'make bench-peers ARGS="{" ".join(sys.argv[1:])}"',
        machine=machine.describe(),
        load_average=round(os.getloadavg()[0], 2),
    )
    for engine in options.engines:
        add(results, engine, place, plan)
        results.write()
    print(report.table(results))


def _widths(text: str) -> list[int]:
    """Raises what argparse reports."""
    widths = [int(part) for part in text.split(",")]
    if unknown := [width for width in widths if width not in FULL.requests]:
        raise argparse.ArgumentTypeError(f"{unknown}: use some of {', '.join(map(str, FULL.requests))}")
    return widths


def _engines(text: str) -> Sequence[Engine]:
    """`baton,llama.cpp`, or one precision of it: `baton:int8`."""
    wanted = text.split(",")
    known = {*NAMES, *(f"{engine.name}:{engine.precision}" for engine in ENGINES)}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: use some of {', '.join(sorted(known))}")
    return [engine for engine in ENGINES if {engine.name, f"{engine.name}:{engine.precision}"} & {*wanted}]


def add(results: report.Results, engine: Engine, place: Place, plan: Plan) -> None:
    """One engine's figures, or why there are none."""
    label = {"engine": engine.name, "precision": engine.precision}
    print(f"{engine.label} …", flush=True)
    try:
        with machine.neighbours() as others, running(engine, place) as target:
            measured = asyncio.run(measure(target, plan, SEED))
    except (Missing, LoadFailed) as error:
        print(f"{engine.label}: {error}", flush=True)
        results.missing.append(label | {"reason": str(error)})
        return
    _keep(results, label, measured)
    results.neighbours.append(label | {"cores": others.cores, "load_average": others.load_average})


def _keep(results: report.Results, label: dict[str, str], measured: Measured) -> None:
    data = measured.as_data()
    for row in data["rows"]:
        print(f"  {row['concurrency']:3} clients: {row['output_tps']:.1f} tokens/s", flush=True)
    results.rows += [label | row for row in data["rows"]]
    results.prefix.append(label | data["prefix"])
    results.gap.append(label | data["gap"])


if __name__ == "__main__":
    main()
