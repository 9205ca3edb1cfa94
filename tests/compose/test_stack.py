"""The system under `docker compose`: ready, a question through ten stops, a service that dies, a clean end.

Own target: `make compose-test`. Skipped with a reason where there is no Docker engine.
"""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Iterator

import pytest

from baton_cli.up.settings import SERVICES
from tests.compose.stack import Stack, eventually, running_stack, why_not

pytestmark = [
    pytest.mark.system,
    pytest.mark.real_weights,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
QUESTION = {
    "model": "auto",
    "stream": True,
    "max_tokens": 24,
    "ignore_eos": True,
    "messages": [{"role": "user", "content": "Why is my API returning a 503?"}],
}
CONTAINERS = {*SERVICES, "nats", "postgres", "engine_small"} - {"engine_worker"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running_stack() as stack:
        started = time.monotonic()
        eventually(stack.is_ready, 300, "/readyz is 200")
        print(f"ready {time.monotonic() - started:.1f} s after `up` returned")
        yield stack


def curl(stack: Stack, body: dict[str, object]) -> tuple[str, str]:
    """Headers and body, as a person sees them."""
    done = subprocess.run(
        ["curl", "-sS", "-i", "-N", "--noproxy", "*", "--max-time", "120", f"{stack.url}/v1/chat/completions",
         "-H", f"Authorization: Bearer {stack.key}", "-H", "Content-Type: application/json",
         "-d", json.dumps(body)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    head, _, rest = done.stdout.partition("\n\n")
    return head, rest


def test_every_container_gets_healthy(stack: Stack) -> None:
    states = eventually(
        lambda: (now := stack.states()) and set(now.values()) == {"healthy"} and now, 180, "all are healthy"
    )
    assert set(states) - {"qdrant"} == CONTAINERS
    assert stack.containers()["setup"]["State"]["ExitCode"] == 0
    assert stack.key in stack.compose("logs", "--no-color", "setup")


def test_a_question_crosses_ten_stops_and_is_in_the_books(stack: Stack) -> None:
    head, body = curl(stack, QUESTION)
    assert head.startswith("HTTP/1.1 200")
    assert "data: [DONE]" in body
    assert '"content":' in body
    request_id = next(
        line.split(": ")[1] for line in head.splitlines() if line.lower().startswith("x-request-id")
    )

    def ten_stops() -> bool:
        trace = stack.get(f"/v1/traces/{request_id}")
        return trace.status_code == 200 and {span["stop"] for span in trace.json()["spans"]} == set(
            range(1, 11)
        )

    assert eventually(ten_stops, 20, "the trace has ten stops")
    usage = stack.get(f"/v1/usage?request_id={request_id}").json()["data"]
    assert [record["usage"]["completion_tokens"] for record in usage] == [24]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels are for x86-64")
def test_the_engine_runs_on_its_kernels(stack: Stack) -> None:
    said = stack.compose("logs", "--no-color", "engine_small")
    assert "backend: native kernels" in said


def test_no_service_reads_anothers_secrets_or_carries_its_packages(stack: Stack) -> None:
    script = (
        "import importlib.util as u, os\n"
        "assert os.getuid() == 10001\n"
        "assert open('/run/baton/env/edge_api.env').read()\n"
        "for name in ('env/llm_gateway.env', 'secrets.json', 'nats.conf'):\n"
        "    try: open(f'/run/baton/{name}')\n"
        "    except PermissionError: print('closed', name)\n"
        "print('database', os.path.exists('/run/baton/database/password'))\n"
        "print('torch', u.find_spec('torch'))\n"
    )
    printed = stack.compose("exec", "-T", "edge_api", "python", "-c", script)
    assert printed.count("closed") == 3
    assert "database False" in printed
    assert "torch None" in printed


def test_a_service_that_dies_is_back(stack: Stack) -> None:
    before = stack.containers()["llm_gateway"]
    # A second signal ends the process at once, with an error. Docker takes `docker kill` for a wish to end.
    twice = "import os, signal\nfor _ in range(2): os.kill(1, signal.SIGTERM)"
    stack.compose("exec", "-T", "llm_gateway", "python", "-c", twice)

    def back() -> bool:
        after = stack.containers()["llm_gateway"]
        return after["RestartCount"] == before["RestartCount"] + 1 and after["State"]["Running"]

    assert eventually(back, 30, "llm_gateway was started again")
    assert eventually(stack.is_ready, 60, "/readyz is 200 again")
    head, body = curl(stack, QUESTION)
    assert head.startswith("HTTP/1.1 200")
    assert "data: [DONE]" in body


def test_a_second_up_keeps_secrets_and_containers(stack: Stack) -> None:
    before = {name: entry["Id"] for name, entry in stack.containers().items()}
    stack.compose("up", "--detach")
    after = {name: entry["Id"] for name, entry in stack.containers().items()}
    assert {name: after[name] for name in CONTAINERS} == {name: before[name] for name in CONTAINERS}
    assert stack.is_ready()
