"""Where one question's time goes: `python -m bench.gateway.where [--relay]`.

Asks one question at a time of edge and gateway (or of all ten stops), reads each question's trace and each
process's CPU time, and prints what a question takes, what its spans take, and how the slowest differ from the
rest. Writes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from bench.gateway import systems
from bench.gateway.load import Place
from bench.gateway.measures import quantile
from bench.relay_cpu import cpu_seconds

REQUEST_ID = re.compile(rb"x-request-id: ([0-9a-f]{32})", re.IGNORECASE)
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
WARM_UP = 60
SLOW_SHARE = 0.05
TRACE_SECONDS = 10.0


class Sample(NamedTuple):
    request_id: str
    sent: float
    """Unix seconds."""
    milliseconds: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.where", description=__doc__)
    parser.add_argument("--relay", action="store_true", help="all ten stops")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two questions")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="baton-bench-") as folder,
        systems.upstream() as upstream,
        systems.baton(Path(folder), upstream.place.port, plain=not options.relay) as running,
    ):
        place, home = running.place, Path(folder) / "home"
        ask_all(place, WARM_UP, 1_000, options.pause)
        before = cpu_seconds(home)
        samples = ask_all(place, options.requests, 10_000, options.pause)
        time.sleep(0.3)  # traces and records go out behind the answer
        spent = cpu_seconds(home)
        spent.subtract(before)
        traces = [read_trace(place, sample.request_id) for sample in samples]
    report(samples, traces, spent)


def ask_all(place: Place, count: int, first_number: int, pause: float) -> list[Sample]:
    samples: list[Sample] = []
    with socket.create_connection(("127.0.0.1", place.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(count):
            request = place.request(first_number + number, stream=False)
            sent, began = time.time(), time.perf_counter()
            connection.sendall(request)
            answer = _whole_answer(connection)
            milliseconds = (time.perf_counter() - began) * 1000
            request_id = REQUEST_ID.search(answer)
            if request_id is None or not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(answer[:600].decode(errors="replace"))
            samples.append(Sample(request_id[1].decode(), sent, milliseconds))
            if pause:
                time.sleep(pause)
    return samples


def _whole_answer(connection: socket.socket) -> bytes:
    received = b""
    while True:
        received += connection.recv(65536)
        head, found, body = received.partition(b"\r\n\r\n")
        if found and (length := LENGTH.search(head)) and len(body) >= int(length[1]):
            return received


def read_trace(place: Place, request_id: str) -> dict[str, Any]:
    """Its spans, once the edge, which reports last, is among them."""
    deadline = time.monotonic() + TRACE_SECONDS
    trace: dict[str, Any] = {"spans": []}
    while time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", place.port, timeout=10)
        connection.request(
            "GET", f"/v1/traces/{request_id}", headers={"authorization": f"Bearer {place.key}"}
        )
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
        if response.status == 200:
            trace = body
            if any(span["stop"] <= 2 for span in trace["spans"]):
                break
        time.sleep(0.02)
    return trace


def report(samples: Sequence[Sample], traces: Sequence[dict[str, Any]], spent: Counter[str]) -> None:
    times = [sample.milliseconds for sample in samples]
    shares = {share: quantile(times, share) for share in (0.5, 0.9, 0.95, 0.99, 1.0)}
    out = sys.stdout.write
    out(f"{len(times)} questions, ms: " + ", ".join(f"p{s * 100:g} {v:.2f}" for s, v in shares.items()))
    limit = quantile(times, 1 - SLOW_SHARE)
    begins: dict[str, list[float]] = defaultdict(list)
    usual: dict[str, list[float]] = defaultdict(list)
    slow: dict[str, list[float]] = defaultdict(list)
    for sample, trace in zip(samples, traces, strict=True):
        for name, start, duration in _spans(trace):
            begins[name].append(start)
            (slow if sample.milliseconds >= limit else usual)[name].append(duration)
    out(f"\n\n{'span':44}{'begins':>8}{'p50':>8}{'p90':>8}{'slow ones p50':>15}\n")
    for name in sorted(begins, key=lambda name: statistics.median(begins[name])):
        values = usual[name] or [0.0]
        late = statistics.median(slow[name] or [0.0])
        out(f"{name:44}{statistics.median(begins[name]):8.2f}{quantile(values, 0.5):8.2f}")
        out(f"{quantile(values, 0.9):8.2f}{late:15.2f}\n")
    out("\nCPU ms a question: ")
    out(", ".join(f"{stop} {s * 1000 / len(times):.2f}" for stop, s in spent.most_common() if s > 0))
    out(f"; together {sum(spent.values()) * 1000 / len(times):.2f}\n")
    slowest = sorted(samples, key=lambda sample: -sample.milliseconds)[:12]
    out("slowest, ms after a whole quarter second: ")
    out(", ".join(f"{s.milliseconds:.1f} at {s.sent % 0.25 * 1000:.0f}" for s in slowest) + "\n")


def _spans(trace: dict[str, Any]) -> list[tuple[str, float, float]]:
    return [
        (f"{span['stop']} {span['stop_name']}: {span['name']}", span["start_ms"], span["duration_ms"])
        for span in trace["spans"]
    ]


if __name__ == "__main__":
    main()
