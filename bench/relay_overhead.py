"""What the nine CPU stops add to a question: milliseconds before the first token and for each token, by stop.

Starts the real system with `baton up`, its engine replaced by one that answers at once, asks one-line
questions one at a time (guardrails on, retrieval off), and reads each question's own trace. Prints a table;
writes it as data to bench/results/relay_overhead.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from baton_cli.up.ports import free_port

KEY = "sk-baton-bench"
CONTENT = re.compile(rb'"content":"([0-9. ]+)"')
REQUEST_ID = re.compile(rb"x-request-id: ([0-9a-f]{32})")
RESULTS = Path(__file__).parent / "results" / "relay_overhead.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="50 requests")
    options = parser.parse_args()
    count = 50 if options.quick else options.requests
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as folder, running_system(Path(folder)) as port:
        for number in range(10):
            ask(port, f"Warm up {number}: how are you today?", options.tokens)
        samples = [
            ask(port, f"What is {number} plus {number * 7}?", options.tokens) for number in range(count)
        ]
        traces = [read_trace(port, sample["request_id"]) for sample in samples]
    report(samples, traces, options.tokens)


@contextmanager
def running_system(home: Path) -> Generator[int]:
    """Yields the port of a ready system whose engine is bench.instant_engine."""
    port = free_port()
    environment = os.environ | {
        "BATON_HOME": str(home),
        "BATON_PORT": str(port),
        "BATON_DEV_KEY": KEY,
        "BATON_LARGE_MODEL": "off",
    }
    log = (home / "bench.log").open("wb")
    command = [sys.executable, "-m", "baton_cli", "up", "--without", "engine_worker"]
    system = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    engine: subprocess.Popen[bytes] | None = None
    try:
        operator = json.loads(_wait_for_file(home / "run" / "operator.json", system))
        engine = subprocess.Popen(
            [sys.executable, "-m", "bench.instant_engine"],
            env=environment
            | {
                "BATON_NATS_URL": operator["nats_url"],
                "BATON_NATS_USER": operator["user"],
                "BATON_NATS_PASSWORD": operator["password"],
            },
            stdout=log,
            stderr=log,
        )
        _wait_until_ready(port, system, home / "bench.log")
        yield port
    finally:
        for process in (engine, system):
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=30)


def _wait_for_file(path: Path, system: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().strip():
            return path.read_text()
        if system.poll() is not None:
            break
        time.sleep(0.05)
    raise SystemExit("the system did not start; run `make up` to see why")


def _wait_until_ready(port: int, system: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and system.poll() is None:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit("the system did not become ready:\n" + log.read_text(errors="replace")[-4000:])


def ask(port: int, question: str, tokens: int) -> dict[str, Any]:
    """One streamed question on a new connection, read from the bare socket: times are those at which bytes
    arrived, in Unix seconds."""
    body = json.dumps(
        {
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": question}],
            "stream": True,
            "max_tokens": tokens,
            "retrieval": "off",
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    ).encode()
    first: float | None = None
    delays: list[float] = []
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        started = time.time()
        connection.sendall(head + body)
        while piece := connection.recv(65536):
            now = time.time()
            received += piece
            for content in CONTENT.findall(piece):  # each event is written whole
                first = first or now
                delays += [now - float(sent) for sent in content.split()]
    if first is None or len(delays) != tokens:
        raise SystemExit(f"{len(delays)} of {tokens} tokens came: {received[:300]!r}")
    request_id = REQUEST_ID.search(received)
    assert request_id is not None
    return {"request_id": request_id[1].decode(), "ttft": first - started, "delays": delays}


def read_trace(port: int, request_id: str) -> dict[str, Any]:
    """The whole trace: asked again until all ten stops have reported."""
    deadline = time.monotonic() + 10
    trace: dict[str, Any] = {}
    while time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", f"/v1/traces/{request_id}", headers={"authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        trace = json.loads(response.read())
        connection.close()
        if response.status == 200 and len(trace["summary"]["stops"]) == 10:
            break
        time.sleep(0.05)
    return trace


ENTITIES = ", of which the named-entity model"
FILTER = ", of which opening the output filter"


def _milliseconds_by_row(trace: dict[str, Any]) -> dict[str, float]:
    """The way to the engine, without overlap: a stop's time from taking the request until it hands it on,
    then the bus until the next stop has taken it."""
    spans = trace["spans"]
    taken = {span["stop"]: span for span in spans if span["name"] == "handle"}
    hops = {span["stop"]: span for span in spans if span["name"] == "hop"}
    rows: dict[str, float] = {
        "1 app: request read": _sum(spans, 1, "request"),
        f"4 input guardrails{ENTITIES}": _sum(spans, 4, "named_entities"),
        f"5 LLM gateway{FILTER}": hops[8]["duration_ms"] if 8 in hops else 0.0,
    }
    for stop in (2, 3, 4, 5, 6):
        following = hops[stop + 1]
        name = taken[stop]["stop_name"]
        rows[f"{stop} {name}"] = following["start_ms"] - taken[stop]["start_ms"]
        rows[f"{stop} {name} → bus"] = following["duration_ms"]
    return rows


def _sum(spans: list[dict[str, Any]], stop: int, name: str) -> float:
    return sum(span["duration_ms"] for span in spans if span["stop"] == stop and span["name"] == name)


def _quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def report(samples: list[dict[str, Any]], traces: list[dict[str, Any]], tokens: int) -> None:
    by_row: dict[str, list[float]] = defaultdict(list)
    for trace in traces:
        for row, value in _milliseconds_by_row(trace).items():
            by_row[row].append(value)
    ttft = [sample["ttft"] * 1000 for sample in samples]
    entities = by_row[f"4 input guardrails{ENTITIES}"]
    without = [total - model for total, model in zip(ttft, entities, strict=False)]
    delays = [delay * 1000 for sample in samples for delay in sample["delays"][1:]]
    table = [(row, _quantile(by_row[row], 0.5), _quantile(by_row[row], 0.99)) for row in sorted(by_row)]
    table += [
        ("first token, socket to socket", _quantile(ttft, 0.5), _quantile(ttft, 0.99)),
        ("the same without the named-entity model", _quantile(without, 0.5), _quantile(without, 0.99)),
        ("a token, engine to socket", _quantile(delays, 0.5), _quantile(delays, 0.99)),
    ]
    sys.stdout.write(f"\n{len(samples)} questions one at a time, {tokens} tokens each\n\n")
    sys.stdout.write(f"{'':62}{'p50 ms':>9}{'p99 ms':>9}\n")
    for row, half, most in table:
        sys.stdout.write(f"{row:62}{half:9.2f}{most:9.2f}\n")
    RESULTS.parent.mkdir(exist_ok=True)
    data = {
        "command": "make bench",
        "requests": len(samples),
        "tokens": tokens,
        "rows": [
            {"row": row, "p50_ms": round(half, 3), "p99_ms": round(most, 3)} for row, half, most in table
        ],
        "mean_ttft_ms": round(statistics.fmean(ttft), 3),
    }
    RESULTS.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
