"""What limits cost: admit and settle of a request, without and with a limit, one at a time and many at once.

`python -m bench.limits [--quick]` starts a NATS server with a file store, puts edges' admissions on it (no
HTTP, no relay) and prints a table; writes it as data to bench/results/limits.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nats.js.errors import NotFoundError

from baton_common.catalog import load_catalog
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import Budget, LimitRule, Run
from baton_edge_api.exchange import Exchange
from baton_edge_api.keys import KeyRing
from baton_edge_api.limits.admission import Admission
from baton_edge_api.limits.asked import Asked
from baton_edge_api.limits.wiring import Limits
from baton_edge_api.metrics import Metrics
from baton_edge_api.settings import EdgeSettings

MODEL = "smollm2-135m"
RULE = LimitRule(
    requests_per_minute=10**8,
    tokens_per_minute=10**10,
    concurrent=10**6,
    budget=Budget(picos=10**18, period="total"),
)
RESULTS = Path(__file__).parent / "results" / "limits.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    count = 300 if parser.parse_args().quick else 3000
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as folder, nats_server(Path(folder)) as url:
        rows = asyncio.run(measure(url, count))
    print(f"{'':<44}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'writes':>9}")
    for row in rows:
        print(
            f"{row['case']:<44}{row['requests_per_s']:>12,.0f}{row['p50_ms']:>10.3f}{row['p99_ms']:>10.3f}"
            f"{row['writes']:>9}"
        )
    RESULTS.write_text(json.dumps({"command": "python -m bench.limits", "rows": rows}, indent=1) + "\n")


@contextmanager
def nats_server(folder: Path) -> Generator[str]:
    binary = Path(sys.executable).parent / "nats-server"
    command = [str(binary), "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder / "js")]
    command += ["--ports_file_dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (
            found := [file for file in folder.glob("*.ports") if file.read_text().strip().endswith("}")]
        ):
            time.sleep(0.02)
        yield json.loads(found[0].read_text())["nats"][0]
    finally:
        process.terminate()
        process.wait()


async def measure(url: str, count: int) -> list[dict[str, Any]]:
    edges = [await edge(url), await edge(url)]
    free, limited = Tenant(tenant_id="t", key_id="free"), Tenant(tenant_id="t", key_id="limited")
    cases = (
        ("no limit, one at a time", edges[:1], free, 1),
        ("four limits, one at a time", edges[:1], limited, 1),
        ("four limits, 64 at once, one edge", edges[:1], limited, 64),
        ("four limits, 64 at once at each of two edges", edges, limited, 64),
    )
    rows: list[dict[str, Any]] = []
    for case, at, tenant, at_once in cases:
        before = await num_writes(edges[0][1])
        began = time.perf_counter()
        workers = [
            one_after_another(admission, tenant, count // at_once)
            for admission, _ in at
            for _ in range(at_once)
        ]
        times = sorted(each for worker in await asyncio.gather(*workers) for each in worker)
        took = time.perf_counter() - began
        rows.append(
            {
                "case": case,
                "requests_per_s": len(times) / took,
                "p50_ms": statistics.median(times) * 1000,
                "p99_ms": times[int(len(times) * 0.99)] * 1000,
                "writes": await num_writes(edges[0][1]) - before,
            }
        )
    for _, bus in edges:
        await bus.close()
    return rows


async def edge(url: str) -> tuple[Admission, NatsBus]:
    bus = await NatsBus.connect(url, name="edge_api")
    ring = KeyRing("")
    entry = KeyEntry(key_id="limited", tenant_id="t", limits=RULE)
    ring.replace({key_hash("k"): entry.encode()})
    limits = Limits(Node(bus, "edge_api"), bus, ring, load_catalog(), Metrics(lambda: []), EdgeSettings())
    limits.rules.replace({})
    return limits.admission, bus


async def one_after_another(admission: Admission, tenant: Tenant, count: int) -> list[float]:
    """Seconds that each request waited for its limits: admit and settle together."""

    async def prompt_tokens() -> int:
        return 50

    times: list[float] = []
    for number in range(count):
        exchange = Exchange(f"{number:032x}", 0.0)
        began = time.perf_counter()
        asked = Asked(MODEL, prompt_tokens, Run("t", exchange.request_id, "0" * 8), max_output_tokens=100)
        grant = await admission.admit(tenant, asked, exchange)
        await grant.settle(Usage(prompt_tokens=50, completion_tokens=70), MODEL)
        times.append(time.perf_counter() - began)
    return times


async def num_writes(bus: NatsBus) -> int:
    try:
        return (await bus.jetstream.stream_info("KV_baton_limits")).state.last_seq
    except NotFoundError:  # not made yet
        return 0


if __name__ == "__main__":
    main()
