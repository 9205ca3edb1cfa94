"""One copy of the compose stack for tests: its own project, ports and images' tag, gone at the end."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
WANTED = "BATON_COMPOSE_TEST"
_POLL_SECONDS = 0.2
_T = TypeVar("_T")


def why_not() -> str:
    """Why there can be no stack here; empty if there can."""
    if not os.environ.get(WANTED):
        return "builds images and starts the whole system in containers: make compose-test"
    if not shutil.which("docker"):
        return "there is no docker command"
    if _docker("info").returncode:
        return f"no Docker engine answers: {_docker('info').stderr.strip()[:200]}"
    if _docker("compose", "version").returncode:
        return "docker has no compose plugin"
    return ""


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], check=False, capture_output=True, text=True)


@dataclass
class Stack:
    project: str
    files: tuple[Path, ...]
    environment: dict[str, str]
    url: str
    key: str

    def compose(self, *arguments: str, quiet: bool = True) -> str:
        """Its output. Fails the test with what was printed."""
        files = [argument for file in self.files for argument in ("-f", str(file))]
        command = [
            "docker",
            "compose",
            "-p",
            self.project,
            "--project-directory",
            str(ROOT),
            *files,
            *arguments,
        ]
        done = subprocess.run(
            command, check=False, capture_output=quiet, text=True, env=os.environ | self.environment
        )
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}\n{done.stderr}"
        return done.stdout or ""

    def containers(self) -> dict[str, dict[str, Any]]:
        """By service: what Docker knows of it, those that have ended included."""
        label = f"label=com.docker.compose.project={self.project}"
        ids = _docker("ps", "-a", "-q", "--filter", label).stdout.split()
        found = json.loads(_docker("inspect", *ids).stdout) if ids else []
        return {entry["Config"]["Labels"]["com.docker.compose.service"]: entry for entry in found}

    def volumes(self) -> list[str]:
        label = f"label=com.docker.compose.project={self.project}"
        return _docker("volume", "ls", "-q", "--filter", label).stdout.split()

    def states(self) -> dict[str, str]:
        """By service that runs: starting, healthy or unhealthy."""
        running = {
            name: entry["State"] for name, entry in self.containers().items() if entry["State"]["Running"]
        }
        return {name: state.get("Health", {}).get("Status", "none") for name, state in running.items()}

    def get(self, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=30, trust_env=False)

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False


def eventually(look: Callable[[], _T], seconds: float, what: str) -> _T:
    """The first true value of `look`."""
    give_up_at = time.monotonic() + seconds
    while not (value := look()):
        assert time.monotonic() < give_up_at, f"not within {seconds:.0f} s: {what}"
        time.sleep(_POLL_SECONDS)  # another machine's clock, so to say: nothing here to wait on
    return value


@contextmanager
def running_stack() -> Iterator[Stack]:
    port, bus, monitor, database = (free_port() for _ in range(4))
    key = f"sk-baton-{secrets.token_hex(16)}"
    environment = {
        "BATON_PORT": str(port),
        "BATON_DEV_KEY": key,
        "BATON_LARGE_MODEL": "0",
        "BATON_VERSION": "test",
        "TEST_NATS_PORT": str(bus),
        "TEST_MONITOR_PORT": str(monitor),
        "TEST_POSTGRES_PORT": str(database),
    }
    offline = () if _has_bridge() else (ROOT / "tests/compose/offline.yml",)
    files = (ROOT / "docker-compose.yml", *offline)
    project = f"baton-test-{secrets.token_hex(3)}"
    stack = Stack(project, files, environment, f"http://127.0.0.1:{port}", key)
    try:
        stack.compose("build", quiet=False)
        stack.compose("up", "--detach", quiet=False)
        yield stack
    except BaseException:
        _show_logs(stack)
        raise
    finally:
        stack.compose("down", "--volumes", "--remove-orphans", "--timeout", "45")
    assert stack.containers() == {}
    assert stack.volumes() == []


def _show_logs(stack: Stack) -> None:
    try:
        print(stack.compose("logs", "--no-color", "--tail", "30"))
        print(stack.states())
    except AssertionError as error:  # the reason for the failure matters more
        print(error)


def _has_bridge() -> bool:
    return "bridge" in _docker("network", "ls", "--format", "{{.Driver}}").stdout.split()
