"""A nats-server that a test may stop and start again on the same port, with the same store."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.nats_server import server_binary


class RestartableNats:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:  # a port that was free a moment ago; the server has to keep one
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Clients connect again by themselves when it is there."""
        command = [str(server_binary()), "-a", "127.0.0.1", "-p", str(self._port), "-js"]
        command += ["-sd", str(self._folder / "jetstream")]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(timeout=10)
            self._process = None


@contextmanager
def restartable_nats_server(folder: Path) -> Iterator[RestartableNats]:
    server = RestartableNats(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
