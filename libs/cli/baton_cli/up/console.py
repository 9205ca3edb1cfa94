"""What the person at the terminal sees of `baton up`: log lines under their process's name, and waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text

NAME_WIDTH = 18
_COLOURS = ("cyan", "green", "yellow", "blue", "magenta", "bright_cyan", "bright_green", "bright_yellow")
_ROTATE_BYTES = 20_000_000
_TICK_SECONDS = 0.5
_LOG_EVERY_SECONDS = 5.0


class PatientConsole(Console):
    """Falls silent when nobody listens any more (`make up | head`); a plain one ends the program."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class UpConsole:
    def __init__(self, console: Console, logs: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._logs = logs
        self._clock = clock
        self._colours: dict[str, str] = {}
        self._files: dict[str, TextIO] = {}

    def log(self, name: str, line: str, *, quiet: bool = False) -> None:
        """One line of a process: to its own file with the time, and unless `quiet` to the terminal."""
        with suppress(OSError):  # a full disk must not stop what writes the lines
            file = self._file(name)
            file.write(f"{datetime.now().astimezone().isoformat(timespec='milliseconds')} {line}\n")
            file.flush()
        if quiet:
            return
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        shown = name.rpartition(":")[2] or name
        self._print(Text.assemble((f"{shown[:NAME_WIDTH]:<{NAME_WIDTH}} │ ", colour), line))

    def say(self, line: str) -> None:
        """A line of the supervisor itself."""
        self._print(Text.assemble((f"{'baton':<{NAME_WIDTH}} │ ", "bold"), line))

    def plain(self, line: str = "") -> None:
        self._print(Text(line))

    def _print(self, line: Text) -> None:
        with suppress(OSError):  # a terminal that was closed
            self._console.print(line, soft_wrap=True)

    @asynccontextmanager
    async def waiting(self, what: str, detail: Callable[[], str] = str) -> AsyncGenerator[None]:
        """A progress line for the body: what is waited for, since when, and `detail` if there is any."""
        started = self._clock()
        ticker = asyncio.create_task(self._tick(what, detail, started))
        try:
            yield
            self.say(f"{what}: ready after {self._clock() - started:.1f} s")
        finally:
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    async def _tick(self, what: str, detail: Callable[[], str], started: float) -> None:
        every = _TICK_SECONDS if self._console.is_terminal else _LOG_EVERY_SECONDS
        status = (
            self._console.status(f"waiting for {what}", refresh_per_second=4)
            if self._console.is_terminal
            else None
        )
        if status:
            status.start()
        try:
            while True:
                await asyncio.sleep(every)
                self._show_wait(status, what, detail(), self._clock() - started)
        finally:
            if status:
                status.stop()

    def _show_wait(self, status: Status | None, what: str, detail: str, seconds: float) -> None:
        line = f"waiting for {what} ({seconds:.0f} s)" + (f": {detail}" if detail else "")
        if status:
            status.update(Text(line))
        else:
            self.say(line)

    def _file(self, name: str) -> TextIO:
        if name not in self._files:
            path = self._logs / f"{name.replace(':', '-')}.log"
            if path.is_file() and path.stat().st_size > _ROTATE_BYTES:
                path.replace(path.with_suffix(".log.1"))
            self._files[name] = path.open("a", encoding="utf-8")
        return self._files[name]
