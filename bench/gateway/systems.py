"""The systems that are compared: how each is started in front of the upstream, and what it takes of memory.

Each runs alone, in a session of its own, on free ports, with its output in a log; ended by its process id.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from baton_cli.up.ports import free_port
from bench.gateway.limits import PROOF, set_limits
from bench.gateway.load import Place

HERE = Path(__file__).parent
START_SECONDS = 150
END_SECONDS = 20
REST_SECONDS = 0.5
REST_CHECKS = 6
REST_LOAD = 0.15
"""Of a core: less than this, so many times in a row, is rest."""
MODEL = "far"
PACED_MS = 100
PACED = f"paced-{PACED_MS}"


class NotHere(Exception):
    """A system that can't be had or does not start here, with the reason."""


@dataclass
class Running:
    name: str
    place: Place
    pid: int
    """Of the process whose descendants, with it, are the system."""
    ours: tuple[str, ...] = ()
    """Words of the command lines that count as its memory; none: all."""

    def memory_mb(self) -> float:
        """Resident memory of its processes."""
        pids = [self.pid, *_descendants(self.pid)]
        counted = [pid for pid in pids if not self.ours or any(word in _command(pid) for word in self.ours)]
        return sum(_resident_mb(pid) for pid in counted)


@contextmanager
def upstream() -> Generator[Running]:
    port = free_port()
    with _process(
        [sys.executable, "-m", "bench.gateway.upstream", str(port)], {}, Path(os.devnull)
    ) as process:
        _wait(process, port, None, Path(os.devnull))
        yield Running("upstream", Place(port, "none", MODEL), process.pid)


@contextmanager
def baton(folder: Path, upstream_port: int, *, plain: bool) -> Generator[Running]:
    """Edge and gateway alone, or all ten stops with the upstream in the engine's place. There without a
    search in documents, which is no part of a gateway's work."""
    home, port, key = folder / "home", free_port(), f"sk-{secrets.token_hex(16)}"
    home.mkdir()
    (home / "catalog.toml").write_text(
        "".join(
            f'[[models.{model}.targets]]\nbase_url = "http://127.0.0.1:{upstream_port}/v1"\n'
            for model in (MODEL, PACED)
        )
    )
    environment = {"BATON_HOME": str(home), "BATON_PORT": str(port), "BATON_DEV_KEY": key}
    environment |= {"BATON_MAX_IN_FLIGHT": "2048", "BATON_LARGE_MODEL": "off"}
    command = [sys.executable, "-m", "baton_cli", "up"]
    command += ["--gateway"] if plain else ["--without", "engine_worker"]
    log = folder / "baton.log"
    with _process(command, environment, log) as process:
        _wait(process, port, "/healthz", log)
        place = Place(port, key, MODEL, {} if plain else {"retrieval": "off"}, PROOF)
        _set_limits(home)
        _wait_for_answer(process, place, log)
        _wait_until_at_rest(process.pid)
        ours = ("baton_edge_api", "baton_llm_gateway", "nats-server") if plain else ()
        yield Running("baton" if plain else "baton, ten stops", place, process.pid, ours)


def _set_limits(home: Path) -> None:
    """Limits that are counted for every request, and never reached."""
    set_limits(json.loads((home / "run" / "operator.json").read_text()))


@contextmanager
def litellm(environment: Path, folder: Path, upstream_port: int) -> Generator[Running]:
    port, key = free_port(), f"sk-{secrets.token_hex(24)}"
    config = folder / "litellm.yaml"
    models = "".join(
        f"  - model_name: {model}\n    litellm_params:\n      model: openai/{model}\n"
        f"      api_base: http://127.0.0.1:{upstream_port}/v1\n      api_key: none\n"
        for model in (MODEL, PACED)
    )
    config.write_text(f"model_list:\n{models}general_settings:\n  master_key: {key}\n")
    command = [str(environment / "bin" / "litellm"), "--config", str(config), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--num_workers", "1", "--telemetry", "False"]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_DOCS": "True"}
    log = folder / "litellm.log"
    with _process(command, quiet, log) as process:
        _wait(process, port, "/health/liveliness", log)
        place = Place(port, key, MODEL)
        _wait_for_answer(process, place, log)
        _wait_until_at_rest(process.pid)
        yield Running("litellm", place, process.pid)


@contextmanager
def _process(
    command: list[str], environment: dict[str, str], log: Path
) -> Generator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=os.environ | environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, path: str | None, log: Path) -> None:
    """Until the port takes connections, or `path` answers 200."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if path is None:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                return
            if _status(port, "GET", path) == 200:
                return
        except (OSError, HTTPException):
            pass
        time.sleep(0.2)
    raise NotHere(_last_lines(log))


def _wait_for_answer(process: subprocess.Popen[bytes], place: Place, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    head, _, body = place.request(0, stream=False).partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if _status(place.port, "POST", "/v1/chat/completions", body, headers) == 200:
                return
        except (OSError, HTTPException):
            pass
        time.sleep(0.2)
    raise NotHere(_last_lines(log))


def _wait_until_at_rest(pid: int) -> None:
    """It may answer while a part of it still loads, or reads documents: that is not what is measured."""
    deadline = time.monotonic() + START_SECONDS
    num_quiet, spent = 0, _cpu_seconds(pid)
    while num_quiet < REST_CHECKS and time.monotonic() < deadline:
        time.sleep(REST_SECONDS)
        before, spent = spent, _cpu_seconds(pid)
        num_quiet = num_quiet + 1 if spent - before < REST_SECONDS * REST_LOAD else 0


def _cpu_seconds(pid: int) -> float:
    """Of a process and its descendants; what those that have ended took is left out."""
    ticks = 0
    for each in (pid, *_descendants(pid)):
        with suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _status(
    port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return "did not start: " + " / ".join(lines[-5:])


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    open_ones = [pid]
    while open_ones:
        own = children.get(open_ones.pop(), [])
        found += own
        open_ones += own
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _resident_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in text.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
    return int(line.split()[1]) / 1024
