"""`make bench-gateway`: Baton's edge and gateway, all its ten stops, and LiteLLM's proxy, in one run.

Each stands in front of the same upstream, which answers at once, and is one process a stop. Keys, limits,
ledger and cache are on in Baton; LiteLLM runs with a master key and without a database. Installs LiteLLM into
an environment of its own under $BATON_HOME/bench (first run: minutes). Prints a table and writes
bench/results/gateway.json.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import uvloop

from baton_cli.home import Home
from bench.gateway import report, systems
from bench.gateway.load import LoadFailed
from bench.gateway.measures import FULL, QUICK, Plan, Row, measure
from bench.gateway.systems import NotHere, Running
from bench.peers import machine
from bench.peers.environments import Missing, environment

HERE = Path(__file__).parent
NAMES = ("baton", "relay", "litellm")

Start = Callable[[Path, int], AbstractContextManager[Running]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="half as long")
    parser.add_argument("--systems", type=_names, default=NAMES, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--keep", action="store_true", help="do not write the results file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a server must not outlive its benchmark
    plan = QUICK if options.quick else FULL
    results = report.Results(
        command=f'make bench-gateway ARGS="{" ".join(sys.argv[1:])}"',
        machine=machine.describe(),
        load_average=round(os.getloadavg()[0], 2),
    )
    peer = _peer(results) if "litellm" in options.systems else None
    with systems.upstream() as upstream:
        straight = uvloop.run(measure(upstream, plan, None))
        results.rows.append(straight)
        for name in options.systems:
            if start := _start_of(name, peer):
                _add(results, name, start, upstream.place.port, plan, straight)
    if not options.keep:
        results.write()
    print(report.table(results))


def _names(text: str) -> tuple[str, ...]:
    """Raises what argparse reports."""
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in NAMES]:
        raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}")
    return names


def _peer(results: report.Results) -> Path | None:
    root = Home.from_environment(os.environ).root / "bench"
    try:
        return environment(root, "litellm", HERE / "requirements-litellm.txt")
    except Missing as missing:
        results.missing["litellm"] = str(missing)
        return None


def _start_of(name: str, peer: Path | None) -> Start | None:
    if name == "baton":
        return lambda folder, port: systems.baton(folder, port, plain=True)
    if name == "relay":
        return lambda folder, port: systems.baton(folder, port, plain=False)
    return (lambda folder, port: systems.litellm(peer, folder, port)) if peer else None


def _add(
    results: report.Results, name: str, start: Start, upstream_port: int, plan: Plan, straight: Row
) -> None:
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="baton-bench-") as folder,
            start(Path(folder), upstream_port) as running,
        ):
            results.rows.append(uvloop.run(measure(running, plan, straight)))
    except (NotHere, LoadFailed) as failed:
        results.missing[name] = str(failed)


if __name__ == "__main__":
    main()
