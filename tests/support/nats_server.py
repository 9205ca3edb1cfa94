"""A real nats-server for tests: its own port, its own store, ended by pid."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def server_binary() -> Path:
    return Path(sys.executable).parent / "nats-server"


@contextmanager
def running_nats_server(folder: Path, config: Path | None = None, *, port: int = -1) -> Iterator[str]:
    """Yields the server's URL. JetStream is on, stored under `folder`. `port` −1: any free one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(server_binary()), "-a", "127.0.0.1", "-p", str(port), "--ports_file_dir", str(folder)]
    command += ["-c", str(config)] if config else ["-js", "-sd", str(folder / "jetstream")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _wait_for_url(folder, process)
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for_url(folder: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert process.poll() is None, "nats-server ended at once"
        for ports in folder.glob("*.ports"):
            text = ports.read_text()
            if text.strip().endswith("}"):
                return str(json.loads(text)["nats"][0])
        time.sleep(0.01)  # nothing tells of the file that another process writes
    raise AssertionError("nats-server did not start within 20 s")
