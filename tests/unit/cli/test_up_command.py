"""`baton up` as a person runs it, on a real bus, with stand-ins for the services.

The stand-ins are modules with the services' names on PYTHONPATH; each writes a file with its pid and waits.
The edge's one answers `/readyz` once every other one has started, and knows the models of the engines.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from baton_cli.keys import key_hash, open_key_book
from baton_cli.models.store import Manifest, ModelStore
from baton_cli.operator_bus import Operator
from baton_cli.up.settings import SERVICES
from baton_common.catalog import load_catalog
from tests.support.ports import free_port

STAND_IN = """
import fcntl, os, signal, sys
home = os.environ["BATON_HOME"]
name = os.environ["BATON_NATS_USER"] + os.environ.get("BATON_MODEL", "")
held = open(os.path.join(home, name + ".alive"), "w")
fcntl.flock(held, fcntl.LOCK_EX)
print("here", os.getpid(), flush=True)
deaf = os.environ.get("STAND_INS_ARE_DEAF")
signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else lambda *_: sys.exit(0))
while True:
    signal.pause()
"""

EDGE = """
import fcntl, glob, json, os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
home = os.environ["BATON_HOME"]
held = open(os.path.join(home, "edge_api.alive"), "w")
fcntl.flock(held, fcntl.LOCK_EX)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        here = len(glob.glob(os.path.join(home, "*.alive")))
        body = b'{"missing": ["engine_worker"]}'
        if self.path == "/v1/models":
            cards = glob.glob(os.path.join(home, "engine_worker?*.alive"))
            names = [os.path.basename(card)[len("engine_worker"):-len(".alive")] for card in cards]
            body = json.dumps({"data": [{"id": name} for name in names]}).encode()
        self.send_response(200 if here == 11 else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

print("here", os.getpid(), flush=True)
HTTPServer(("127.0.0.1", int(os.environ["BATON_PORT"])), Ready).serve_forever()
"""


class Copy:
    """One running `baton up`."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        self.home = home
        stands = home.parent / "stand-ins"
        for service in SERVICES:
            (stands / f"baton_{service}").mkdir(parents=True, exist_ok=True)
            (stands / f"baton_{service}" / "__init__.py").touch()
            script = EDGE if service == "edge_api" else STAND_IN
            (stands / f"baton_{service}" / "__main__.py").write_text(script)
        self.port = int(environment.get("BATON_PORT", free_port()))
        variables = {**os.environ, "BATON_HOME": str(home), "BATON_PORT": str(self.port), **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "baton_cli", "up", *arguments],
            env={**variables, "PYTHONPATH": str(stands), "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[str] = []
        self._watchdog = threading.Timer(120, self.process.kill)
        self._watchdog.start()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line from here on that has `pattern` in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"{pattern!r} was never said:\n{''.join(self.said)}")

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        out, _ = self.process.communicate()
        self.said.append(out)
        return self.process.returncode

    def close(self) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def install_models(home: Path) -> None:
    """Both default models, as far as `baton up` looks: nothing is fetched."""
    store = ModelStore(home / "models")
    for model in load_catalog().defaults:
        built = home / "built"
        built.mkdir(parents=True)
        store.adopt(built, Manifest(model.name, "here", "MIT", "here", model.checked_file.sha256, "now"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    install_models(home)
    return home


@pytest.fixture
def copies() -> Iterator[list[Copy]]:
    copies: list[Copy] = []
    yield copies
    for copy in copies:
        copy.close()


def assert_all_dead(home: Path) -> None:
    """Every stand-in held a lock, which the kernel drops only at its death."""
    files = sorted(home.glob("*.alive"))
    assert len(files) == 11
    for file in files:
        with file.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)


def test_it_starts_everything_says_how_to_use_it_and_stops_cleanly(home: Path, copies: list[Copy]) -> None:
    copies.append(copy := Copy(home))
    copy.wait_for("Baton is ready")
    url = copy.wait_for(r"URL  (\S+)")[1]
    key = copy.wait_for(r"Key  (sk-baton-\S+)")[1]
    curl = copy.wait_for(r"Try  (curl .*)")[1]
    assert url == f"http://127.0.0.1:{copy.port}"
    assert f"Bearer {key}" in curl
    assert f"{url}/v1/chat/completions" in curl
    assert '"stream": true' in curl
    assert (home / "run" / "dev_key").read_text() == f"{key}\n"
    secrets = ["dev_key", "operator.json", "nats.conf", "env/edge_api.env"]
    assert {oct((home / "run" / name).stat().st_mode & 0o777) for name in secrets} == {"0o600"}
    assert oct((home / "run").stat().st_mode & 0o777) == "0o700"
    assert (home / "logs" / "embedder.log").read_text().split()[1] == "here"
    assert (home / "logs" / "engine_worker-smollm2-135m.log").is_file()
    operator = Operator.decode((home / "run" / "operator.json").read_text())

    async def digests() -> list[str]:
        async with open_key_book(operator) as book:
            return [key_hash(key)] if [record.key_id for record in await book.list()] == ["dev"] else []

    assert asyncio.run(digests()) == [key_hash(key)]
    assert copy.end(signal.SIGINT) == 0
    assert "everything has stopped" in copy.said[-1]
    assert_all_dead(home)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_a_second_ctrl_c_does_not_wait_for_the_deaf(home: Path, copies: list[Copy]) -> None:
    copies.append(copy := Copy(home, STAND_INS_ARE_DEAF="1"))
    copy.wait_for("Baton is ready")
    copy.process.send_signal(signal.SIGINT)
    copy.process.send_signal(signal.SIGINT)  # as make and the terminal together send it: still the first
    copy.wait_for("stopping")
    with pytest.raises(subprocess.TimeoutExpired):
        copy.process.wait(0.5)
    assert copy.end(signal.SIGINT) == 0
    assert "killing everything" in copy.said[-1]
    assert "did not end within" not in "".join(copy.said)
    assert_all_dead(home)


def test_a_killed_service_comes_back_and_a_killed_bus_too(home: Path, copies: list[Copy]) -> None:
    copies.append(copy := Copy(home))
    copy.wait_for("Baton is ready")
    log = home / "logs" / "llm_gateway.log"
    os.kill(int(log.read_text().split()[-1]), signal.SIGKILL)
    copy.wait_for(r"llm_gateway was ended by SIGKILL .* starting it again in 0\.2 s")
    copy.wait_for(r"llm_gateway +│ here \d+")
    port = re.search(r"port: (\d+)", (home / "run" / "nats.conf").read_text())
    bus_log = (home / "logs" / "nats_server.log").read_text()
    pids = re.findall(r"\[(\d+)\] \[INF\] Starting nats-server", bus_log)
    os.kill(int(pids[-1]), signal.SIGKILL)
    copy.wait_for(r"nats_server was ended by SIGKILL")
    assert port is not None
    assert copy.end(signal.SIGTERM) == 0
    assert_all_dead(home)


def test_a_killed_supervisor_leaves_nothing_behind_and_the_next_one_starts(
    home: Path, copies: list[Copy]
) -> None:
    copies.append(first := Copy(home, BATON_DEV_KEY="sk-first-key"))
    first.wait_for("Baton is ready")
    first.end(signal.SIGKILL)
    assert_all_dead(home)
    for file in home.glob("*.alive"):
        file.unlink()
    copies.append(second := Copy(home, BATON_DEV_KEY="sk-second-key"))
    second.wait_for("Baton is ready")
    second.wait_for("Key  sk-second-key")
    assert second.end(signal.SIGINT) == 0


def test_a_second_copy_on_the_same_home_or_port_is_refused(
    home: Path, copies: list[Copy], tmp_path: Path
) -> None:
    copies.append(first := Copy(home))
    first.wait_for("Baton is ready")
    copies.append(second := Copy(home))
    second.wait_for(rf"already runs on .*home \(process {first.process.pid}\)")
    assert second.process.wait(10) == 1
    install_models(tmp_path / "other")
    copies.append(third := Copy(tmp_path / "other", BATON_PORT=str(first.port)))
    third.wait_for(rf"Port {first.port} is in use .* BATON_PORT=")
    assert third.process.wait(10) == 1
    assert first.end(signal.SIGINT) == 0


def test_services_can_be_left_out_and_the_rest_still_says_where_it_is(home: Path, copies: list[Copy]) -> None:
    copies.append(copy := Copy(home, "--without", "engine-worker"))
    copy.wait_for("Baton runs in part: missing engine_worker")
    copy.wait_for(r"URL  http://127\.0\.0\.1")
    assert not list(home.glob("engine_worker*.alive"))
    assert copy.end(signal.SIGINT) == 0


def test_each_service_can_be_replaced_by_hand_with_what_is_in_its_environment_file(
    home: Path, copies: list[Copy]
) -> None:
    copies.append(copy := Copy(home, "--only", "trace_console"))
    copy.wait_for(r"trace_console +│ here")
    operator = json.loads((home / "run" / "operator.json").read_text())
    lines = (home / "run" / "env" / "embedder.env").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    assert values["BATON_NATS_URL"] == operator["nats_url"]
    assert values["BATON_NATS_USER"] == "embedder"
    assert "BATON_VAULT_KEY" not in values
    assert "BATON_VAULT_KEY" in (home / "run" / "env" / "output_guardrails.env").read_text()
    assert copy.end(signal.SIGINT) == 0
