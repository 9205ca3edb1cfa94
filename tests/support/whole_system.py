"""The whole system as `make up` starts it, for tests: its own home and port, models pulled before."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.service_process import ServiceProcess

DEV_KEY = "sk-baton-dev-0123456789abcdef0123456789abcdef"


def pulled_models() -> Path:
    return Path(os.environ.get("BATON_HOME") or Path.home() / ".baton") / "models"


def has_model(name: str = "smollm2-135m") -> bool:
    return (pulled_models() / name).is_dir()


@dataclass(frozen=True)
class WholeSystem:
    url: str
    key: str
    supervisor: ServiceProcess
    home: Path


@asynccontextmanager
async def running_system(home: Path, *, seconds: float = 180) -> AsyncIterator[WholeSystem]:
    """Ready when this yields; SIGTERM at the end, so a test sees a clean stop or fails."""
    (home / "models").symlink_to(pulled_models())
    port = _free_port()
    own = {"BATON_HOME": str(home), "BATON_PORT": str(port), "BATON_DEV_KEY": DEV_KEY}
    env = {key: value for key, value in os.environ.items() if not key.startswith("BATON_")} | own
    env |= {
        "BATON_ENGINE_THREADS": "1",
        "BATON_ENGINE_KV_MEMORY_MB": "256",
    }  # see tests/system/live_system.py
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "baton_cli", "up", "--no-large", env=env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    supervisor = ServiceProcess(process)
    try:
        await supervisor.logged("Baton is ready", seconds=seconds)
        yield WholeSystem(f"http://127.0.0.1:{port}", DEV_KEY, supervisor, home)
    finally:
        if process.returncode is None:
            assert await supervisor.terminate() == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
