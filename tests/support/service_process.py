"""A service of Baton as a real process, for tests: started, waited for, ended by pid."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager


class ServiceProcess:
    """`lines` holds what it has logged so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        stream = self.process.stderr or self.process.stdout
        assert stream
        async for line in stream:
            self.lines.append(line.decode().rstrip())
            self._news.set()
        self._news.set()

    async def logged(self, text: str, *, seconds: float = 30) -> str:
        """The first line with `text` in it, now or later."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._news.clear()
                    for line in self.lines:
                        if text in line:
                            return line
                    assert not self._reader.done(), f"ended without {text!r}:\n" + "\n".join(self.lines)
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"no {text!r} within {seconds} s:\n" + "\n".join(self.lines)) from None

    async def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        await self._gone()

    async def terminate(self) -> int:
        """SIGTERM; its exit status."""
        self.process.terminate()
        await self._gone()
        assert self.process.returncode is not None
        return self.process.returncode

    async def _gone(self) -> None:
        async with asyncio.timeout(60):
            await self.process.wait()
            await self._reader


@asynccontextmanager
async def running_service(service: str, environment: Mapping[str, str]) -> AsyncIterator[ServiceProcess]:
    """`python -m baton_SERVICE`, ready when this yields."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("BATON_")} | dict(
        environment
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"baton_{service}", env=env, stderr=asyncio.subprocess.PIPE
    )
    running = ServiceProcess(process)
    try:
        await running.logged("is ready")
        yield running
    finally:
        if process.returncode is None:
            await running.kill()
