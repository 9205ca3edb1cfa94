"""A nats-server that a test may stop and start again on the same port, with the same store."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from baton_common.nats_bus import NatsBus
from tests.support.nats_server import server_binary
from tests.support.ports import free_port


class RestartableNats:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()  # the server keeps it while it is away
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
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """What clients send from here on goes into their sockets and no further."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """With all that it had not read yet."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process:
            self._process.send_signal(number)
            self._process.wait(timeout=10)
            self._process = None


class Connections:
    """Says when buses have lost their server and found it again. Made while they are connected."""

    def __init__(self, *buses: NatsBus) -> None:
        self._buses = buses
        self._changed = asyncio.Event()
        for bus in buses:
            client: Any = bus._client
            client._disconnected_cb = self._then_note(client._disconnected_cb)
            client._reconnected_cb = self._then_note(client._reconnected_cb)

    def _then_note(self, callback: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def noting() -> None:
            await callback()
            self._changed.set()

        return noting

    async def lost(self) -> None:
        await self._until(connected=False)

    async def found(self) -> None:
        await self._until(connected=True)

    async def _until(self, *, connected: bool) -> None:
        """All of them."""
        async with asyncio.timeout(15):
            while any(bus.connected != connected for bus in self._buses):
                self._changed.clear()
                await self._changed.wait()


@contextmanager
def restartable_nats_server(folder: Path) -> Iterator[RestartableNats]:
    server = RestartableNats(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
