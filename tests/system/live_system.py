"""A real `baton up` for tests: its own home and port, its processes by name, its counters, its end by Ctrl-C.

Synchronous on purpose: one system serves many tests, each with an event loop of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.support.ports import free_port
from tests.support.whole_system import DEV_KEY, pulled_models
from tests.system.operator_desk import ask_stats

SMALL = "smollm2-135m"
LARGE = "qwen2.5-coder-0.5b"
SERVICES = (
    "edge_api", "prompt_builder", "embedder", "input_guardrails", "llm_gateway", "inference_router",
    "engine_worker", "output_guardrails", "after_answer", "trace_console",
)  # fmt: skip
START_SECONDS = 180
READY_SECONDS = 60
_POLL_SECONDS = 0.05
_SERVICE = re.compile(r" -m baton_(\w+)")
_SAMPLE = re.compile(r"^(?P<name>[a-z_:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, *, seconds: float = 20) -> T:
    """The first true thing that `look` returns; an AssertionError says what was waited for and last seen."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}; last seen: {found!r}"
        time.sleep(_POLL_SECONDS)


def environment_without_baton() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}


@dataclass(frozen=True)
class Rest:
    """What the system still holds, as its own counters say. All zero, and each service has said so: nothing
    was left behind."""

    running: float
    waiting: float
    blocks_held: float
    in_flight: float
    held: Mapping[str, int]
    """Requests in the actors and cancellable parts, of each service that has any."""
    silent: tuple[str, ...]
    """Services that did not say what they hold."""

    def __bool__(self) -> bool:
        counters = (self.running, self.waiting, self.blocks_held, self.in_flight)
        return not (any(counters) or self.held or self.silent)


class LiveSystem:
    def __init__(self, home: Path, *options: str, port: int | None = None, **environment: str) -> None:
        """`home` may hold the state of an earlier start."""
        self.home = home
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = DEV_KEY
        self._log = home / "up.log"
        self._options = options
        own = {"BATON_HOME": str(home), "BATON_PORT": str(self.port), "BATON_DEV_KEY": DEV_KEY}
        # One thread: two would wait for each other at every barrier while the other test process computes.
        # KV memory for few requests: what the engine may use, it touches when it starts.
        engine = {"BATON_ENGINE_THREADS": "1", "BATON_ENGINE_KV_MEMORY_MB": "512"}
        self.environment = environment_without_baton() | engine | own | environment
        self._process: subprocess.Popen[bytes] | None = None

    # Life

    def start(self, *, until: str = "Baton is ready", seconds: float = START_SECONDS) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        if not (self.home / "models").exists():
            (self.home / "models").symlink_to(pulled_models())
        with self._log.open("ab") as log:
            at = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "baton_cli", "up", *self._options],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        try:
            eventually(lambda: until in self._said(at), f"{until!r} in {self._log}", seconds=seconds)
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"{error}\n{self.log[-4000:]}") from None

    def _said(self, at: int) -> str:
        assert self._process
        text = self._log.read_bytes()[at:].decode(errors="replace")
        assert self._process.poll() is None, f"`baton up` ended with {self._process.returncode}:\n{text}"
        return text

    def stop(self, number: signal.Signals = signal.SIGINT, *, seconds: float = 60) -> float:
        """Ctrl-C. How many seconds it took; an AssertionError if it ended badly or left a process behind."""
        assert self._process
        pids = set(self.pids().values())
        began = time.monotonic()
        self._process.send_signal(number)
        try:
            code = self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"not ended {seconds:g} s after {number.name}:\n{self.log[-4000:]}"
            ) from None
        took = time.monotonic() - began
        assert code == 0, f"exit code {code}:\n{self.log[-4000:]}"
        left = {pid for pid in pids if _is_running(pid)}
        assert not left, f"{left} outlived `baton up`"
        return took

    def kill(self) -> None:
        """kill -9 of the supervisor; it takes its children along."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=20)

    def kill_and_see_all_gone(self, *, seconds: float = 15) -> None:
        pids = set(self.pids().values())
        self.kill()
        eventually(lambda: not any(_is_running(pid) for pid in pids), "no process is left", seconds=seconds)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    # Its processes

    @property
    def supervisor_pid(self) -> int:
        assert self._process
        return self._process.pid

    def pids(self) -> dict[str, int]:
        """By service; `nats_server` is one of them."""
        assert self._process
        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=,ppid=,stat=,command="], check=True, capture_output=True, text=True
        ).stdout  # fmt: skip
        found: dict[str, int] = {}
        for line in listed.splitlines():
            pid, parent, state, command = line.split(maxsplit=3)
            if int(parent) != self._process.pid or state.startswith("Z"):
                continue
            service = _SERVICE.search(command)
            if service:
                found[service[1]] = int(pid)
            elif "nats-server" in command:
                found["nats_server"] = int(pid)
        return found

    def send(self, service: str, number: signal.Signals) -> int:
        """Returns the pid that got it."""
        pid = self.pids()[service]
        os.kill(pid, number)
        return pid

    @contextmanager
    def frozen(self, *services: str) -> Iterator[None]:
        pids = [self.send(service, signal.SIGSTOP) for service in services]
        try:
            yield
        finally:
            for pid in pids:
                if _is_running(pid):
                    os.kill(pid, signal.SIGCONT)

    def kill_and_wait(self, service: str, *, seconds: float = READY_SECONDS) -> float:
        """kill -9; seconds until another process of it is there and a question would be answered."""
        began = time.monotonic()
        old = self.send(service, signal.SIGKILL)
        self.wait_back(service, old, seconds=seconds)
        return time.monotonic() - began

    def wait_back(self, service: str, old_pid: int, *, seconds: float = READY_SECONDS) -> None:
        eventually(
            lambda: self.pids().get(service, old_pid) != old_pid, f"{service} is back", seconds=seconds
        )  # fmt: skip
        self.wait_ready(seconds=seconds)

    def wait_ready(self, *, seconds: float = READY_SECONDS) -> None:
        def ready() -> bool:
            try:
                return self.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        eventually(ready, f"/readyz is 200\n{self.log[-3000:]}", seconds=seconds)

    # What it says

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def get(self, path: str, key: str = "", **params: Any) -> httpx.Response:
        """`key`: another one than the system's own."""
        headers = {"authorization": f"Bearer {key}"} if key else self.headers
        return httpx.get(self.url + path, headers=headers, params=params, timeout=20, trust_env=False)

    def post(self, body: Mapping[str, Any], **headers: str) -> httpx.Response:
        return httpx.post(
            f"{self.url}/v1/chat/completions", json=dict(body), headers=self.headers | headers,
            timeout=120, trust_env=False,
        )  # fmt: skip

    def metric(self, name: str) -> float:
        """The sum over all labels."""
        text = self.get("/metrics").text
        return sum(float(found["value"]) for found in _SAMPLE.finditer(text) if found["name"] == name)

    def rest(self) -> Rest:
        stats = self.stats()
        return Rest(
            running=self.metric("vllm:num_requests_running"),
            waiting=self.metric("vllm:num_requests_waiting"),
            blocks_held=self.metric("baton:kv_blocks_held"),
            in_flight=self.metric("baton:requests_in_flight"),
            held={service: held for service, counts in stats.items() if (held := sum(counts.values()))},
            silent=tuple(service for service in SERVICES if service not in stats),
        )

    def wait_at_rest(self, *, seconds: float = 20) -> None:
        """Nothing is held anywhere. A failure shows what still is."""
        last: list[Rest] = []

        def looked() -> bool:
            last[:] = [self.rest()]
            return bool(last[0])

        try:
            eventually(looked, "everything at rest", seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error} {last}") from None

    def stats(self) -> dict[str, dict[str, int]]:
        """Of each service that answers: `held` and `cancellable`."""
        return ask_stats(self)

    def operator(self) -> dict[str, str]:
        return json.loads((self.home / "run" / "operator.json").read_text())

    def trace(self, request_id: str, *, status: str | None = None, seconds: float = 20) -> dict[str, Any]:
        """Once it is complete: no report of a stop is due any more."""

        def complete() -> dict[str, Any] | None:
            answer = self.get(f"/v1/traces/{request_id}")
            if answer.status_code != 200:
                return None
            trace: dict[str, Any] = answer.json()
            now = trace["summary"]["status"]
            return trace if now != "running" and status in (None, now) else None

        return eventually(complete, f"trace {request_id} is {status or 'complete'}", seconds=seconds)  # type: ignore[return-value]

    def usage(self, request_id: str) -> list[dict[str, Any]]:
        """Ledger rows, oldest first. They include every record that was stored before the question."""
        answer = self.get("/v1/usage", request_id=request_id)
        assert answer.status_code == 200, answer.text
        rows: list[dict[str, Any]] = answer.json()["data"]
        return rows

    def conversation(self, conversation_id: str) -> list[dict[str, Any]]:
        answer = self.get(f"/v1/conversations/{conversation_id}")
        return answer.json()["turns"] if answer.status_code == 200 else []

    def cli(self, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """`baton …` as a person runs it beside this system."""
        return subprocess.run(
            [sys.executable, "-m", "baton_cli", *arguments], env=self.environment, timeout=seconds,
            capture_output=True, text=True, check=False,
        )  # fmt: skip


def _is_running(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True
    ).stdout.strip()  # fmt: skip
    return bool(state) and not state.startswith("Z")
