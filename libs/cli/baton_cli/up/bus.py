"""The NATS server: which program, whether it listens, whether it is new enough."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from baton_cli.errors import StartFailed
from baton_cli.home import Home
from baton_cli.up.plan import ProcessSpec

_POLL_SECONDS = 0.02
_MIN_VERSION = (2, 12)
"""Older servers ignore what we ask of them (per-key time to live, counters) without a word."""


def find_server(environment: Mapping[str, str]) -> str:
    """The one that was installed beside this Python, else one on PATH. Raises StartFailed."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.is_file() else shutil.which("nats-server", path=environment.get("PATH"))
    if not found:
        raise StartFailed("nats-server", "the program is not installed; `make install` installs it")
    return found


def server_spec(home: Home, environment: Mapping[str, str]) -> ProcessSpec:
    plain = {name: value for name, value in environment.items() if not name.startswith("BATON_")}
    command = (find_server(environment), "--config", str(home.nats_config))
    return ProcessSpec("nats_server", command, plain, wave=0)


def is_routine(line: str) -> bool:
    """Whether a line of the server's log is of no interest to the person at the terminal."""
    return "[INF]" in line or "Plaintext passwords" in line  # they are random, made anew, and mode 0600


async def wait_until_listening(port: int, timeout_seconds: float = 15.0) -> None:
    """Raises StartFailed if nothing answers in time, or something that is no recent NATS server."""
    try:
        async with asyncio.timeout(timeout_seconds):
            while not (greeting := await _greeting(port)):  # noqa: ASYNC110 - another process's event
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        reason = f"nothing listened on port {port} within {timeout_seconds:.0f} s; its lines above say why"
        raise StartFailed("nats-server", reason) from None
    check_version(greeting)


def check_version(greeting: bytes) -> None:
    """`greeting` is the server's first line: INFO and a JSON object. Raises StartFailed."""
    try:
        info = cast("dict[str, object]", json.loads(greeting.removeprefix(b"INFO ")))
        version = str(info["version"])
        numbers = tuple(int(part) for part in version.split(".")[:2])
    except (ValueError, KeyError, TypeError) as error:
        raise StartFailed("nats-server", "what listens on its port is no NATS server") from error
    if numbers < _MIN_VERSION:
        needed = ".".join(map(str, _MIN_VERSION))
        raise StartFailed("nats-server", f"it is {version}, and {needed} or newer is needed")


async def _greeting(port: int) -> bytes:
    """Empty while nobody listens."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    try:
        return await reader.readline()
    except OSError:
        return b""
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
