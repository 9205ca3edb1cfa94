"""One process that is kept running: started, read from, started again when it dies, stopped at last.

Knows nothing of what the process is for. Its output goes line by line to `say`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from baton_cli.processes import tethered
from baton_cli.up.backoff import Backoff
from baton_cli.up.plan import ProcessSpec

KILL_AFTER_SECONDS = 10.0
_LONGEST_LINE_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024

Say = Callable[[str], None]
Pause = Callable[[asyncio.Event, float], Awaitable[None]]


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Until it is time, or until stopping begins."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


class SupervisedProcess:
    def __init__(
        self,
        spec: ProcessSpec,
        *,
        output: Say,
        events: Say,
        last_words: signal.Signals = signal.SIGKILL,
        clock: Callable[[], float] = time.monotonic,
        pause: Pause = pause,
    ) -> None:
        """`output` gets the process's own lines, `events` what happens to it. `last_words` is the signal that
        the kernel sends it should the supervisor itself be killed."""
        self.spec = spec
        self.num_starts = 0
        self._output = output
        self._events = events
        self._last_words = last_words
        self._clock = clock
        self._pause = pause
        self._backoff = Backoff()
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """None while it is not running."""
        return self._process.pid if self._process else None

    async def keep_running(self) -> None:
        """Returns once `stop` was called and the process is gone."""
        while not self._stopping.is_set():
            started = self._clock()
            how = await self._run_once()
            if self._stopping.is_set():
                return
            alive_seconds = self._clock() - started
            delay = self._backoff.after_death(alive_seconds)
            self._events(f"{how} after {alive_seconds:.1f} s; starting it again in {delay:.1f} s")
            await self._pause(self._stopping, delay)

    async def stop(self, kill_after_seconds: float = KILL_AFTER_SECONDS) -> None:
        """Asks it to end, and after a while makes it."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(kill_after_seconds):
                await process.wait()
        except TimeoutError:
            self._events(f"did not end within {kill_after_seconds:.0f} s; killing it")
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """At once, with whatever it started itself."""
        self._stopping.set()
        if self._process:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _run_once(self) -> str:
        """Starts it and waits for its end; says how it ended."""
        self.num_starts += 1
        try:
            process = await asyncio.create_subprocess_exec(
                *tethered(self.spec.command, self._last_words),
                env=dict(self.spec.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops things in order
            )
        except OSError as error:
            return f"could not be started ({error})"
        self._process = process
        if self._stopping.is_set():  # `stop` was called while it was being started
            process.terminate()
        reader = asyncio.create_task(self._read(process.stdout))
        try:
            code = await process.wait()
        finally:
            self._process = None
            await self._let_finish(reader)
        return _how_it_ended(code)

    async def _let_finish(self, reader: asyncio.Task[None]) -> None:
        """Its last lines are still in the pipe; but a grandchild may hold the pipe open for ever."""
        done, _ = await asyncio.wait({reader}, timeout=1)
        if not done:
            reader.cancel()

    async def _read(self, stream: asyncio.StreamReader | None) -> None:
        held = b""
        while stream and (block := await stream.read(_READ_BYTES)):
            *lines, held = (held + block).split(b"\n")
            for line in lines:
                self._output(_clean(line))
            if len(held) > _LONGEST_LINE_BYTES:
                self._output(_clean(held))
                held = b""
        if held:
            self._output(_clean(held))


def _clean(line: bytes) -> str:
    """Printable: a log line must not be able to steer the terminal."""
    text = line[:_LONGEST_LINE_BYTES].decode(errors="replace").expandtabs().rstrip()
    return "".join(char if char.isprintable() else "·" for char in text)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
