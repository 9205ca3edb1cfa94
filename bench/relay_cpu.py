"""What a token costs each stop in CPU time when many answers stream at once: `python -m bench.relay_cpu`.

Starts the real system, its engine replaced by one that answers at once and steps all answers together, as a
real one does. Reads the processes' CPU time from /proc before and after, so the machine may be busy with
other things, within reason. Prints a table; writes it as data to bench/results/relay_cpu.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.relay_overhead import KEY, running_system

RESULTS = Path(__file__).parent / "results" / "relay_cpu.json"
TICKS = os.sysconf("SC_CLK_TCK")
STEP_SECONDS = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.relay_cpu", description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8, help="answers of each client")
    options = parser.parse_args()
    os.environ["BENCH_TOKEN_SECONDS"] = str(STEP_SECONDS)
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as folder, running_system(Path(folder)) as port:
        home = Path(folder)
        asyncio.run(_load(port, options.clients, 1, options.tokens))
        few = _measured(home, port, options.clients, options.rounds, 1)
        many = _measured(home, port, options.clients, options.rounds, options.tokens)
    report(few, many, options)


def _measured(home: Path, port: int, clients: int, rounds: int, tokens: int) -> dict[str, float]:
    """CPU milliseconds of each stop for one answer."""
    before = cpu_seconds(home)
    asyncio.run(_load(port, clients, rounds, tokens))
    time.sleep(0.5)  # traces and records go out behind the answer
    spent = cpu_seconds(home)
    spent.subtract(before)
    return {stop: seconds * 1000 / (clients * rounds) for stop, seconds in spent.items()}


async def _load(port: int, clients: int, rounds: int, tokens: int) -> None:
    async def client(number: int) -> None:
        for turn in range(rounds):
            await _ask(port, f"What is {number} plus {turn}?", tokens)

    await asyncio.gather(*(client(number) for number in range(clients)))


async def _ask(port: int, question: str, tokens: int) -> None:
    body = {
        "model": "smollm2-135m", "messages": [{"role": "user", "content": question}], "stream": True,
        "max_tokens": tokens, "retrieval": "off",
    }  # fmt: skip
    payload = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(payload)}\r\nconnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + payload)
    answer = await reader.read()
    writer.close()
    if b"[DONE]" not in answer:
        raise SystemExit(f"an answer broke off: {answer[:300]!r}")


def cpu_seconds(home: Path) -> Counter[str]:
    """User and system time of the processes of the system that lives in `home`, by stop."""
    ours = f"BATON_HOME={home}".encode()
    spent: Counter[str] = Counter()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_ours = ours in (process / "environ").read_bytes().split(b"\0")
            if not is_ours and not any(str(home).encode() in word for word in words):
                continue
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if name := _stop_of(words):
            spent[name] += (int(fields[11]) + int(fields[12])) / TICKS
    return spent


def _stop_of(words: list[bytes]) -> str | None:
    if words[0].endswith(b"nats-server"):
        return "nats-server"
    module = words[2].decode() if len(words) > 2 and words[1] == b"-m" else ""
    if module == "bench.instant_engine":
        return "the engine's side"
    is_stop = module.startswith("baton_") and module != "baton_cli"
    return module.removeprefix("baton_") if is_stop else None


def report(few: dict[str, float], many: dict[str, float], options: Any) -> None:
    """A token's cost is the slope between answers of one token and of many."""
    between = options.tokens - 1
    rows = [
        (stop, few[stop], (many[stop] - few[stop]) / between * 1000)
        for stop in sorted(many, key=lambda stop: -many[stop])
        if many[stop] >= 0.05
    ]
    rows.append(("together", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    sys.stdout.write(
        f"\n{options.clients} clients, {options.rounds} answers of {options.tokens} tokens each\n\n"
    )
    sys.stdout.write(f"{'CPU time':24}{'an answer of 1, ms':>20}{'a further token, µs':>21}\n")
    for stop, answer, token in rows:
        sys.stdout.write(f"{stop:24}{answer:20.2f}{token:21.1f}\n")
    data = {
        "command": "python -m bench.relay_cpu",
        "clients": options.clients,
        "tokens": options.tokens,
        "rounds": options.rounds,
        "rows": [
            {"stop": stop, "answer_ms": round(answer, 3), "token_us": round(token, 1)}
            for stop, answer, token in rows
        ],
    }
    RESULTS.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
