"""The processes of the real comparison: a NATS server and engine workers, ended when the block is left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from baton_cli.up.ports import free_port


@contextmanager
def nats_server() -> Generator[str]:
    """Yields its URL."""
    port = free_port()
    server = Path(sys.executable).parent / "nats-server"
    with TemporaryDirectory(prefix="baton-bench-") as store:
        command = [str(server), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", store, "-l", os.devnull]
        with _running(command, {}):
            _until_listening(port)
            yield f"nats://127.0.0.1:{port}"


@contextmanager
def engine_workers(url: str, model: str, count: int) -> Generator[None]:
    """As `baton up --replicas` starts them: they divide cores and memory. They may still be loading."""
    threads = str(max(1, (os.cpu_count() or 1) // count))
    environment = {
        "BATON_MODEL": model,
        "BATON_NATS_URL": url,
        "BATON_ENGINE_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "BATON_ENGINE_MEMORY_SHARE": f"{1 / count:.4f}",
        "BATON_LOG_LEVEL": "ERROR",
    }
    with ExitStack() as processes:
        for _ in range(count):
            command = [sys.executable, "-m", "baton_engine_worker"]
            processes.enter_context(_running(command, environment))
        yield


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str]) -> Generator[None]:
    process = subprocess.Popen(
        command, env=os.environ | dict(environment), stdout=subprocess.DEVNULL, stderr=None
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_listening(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("nats-server did not start")
