"""Pull progress: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from baton_cli.models.fetch import PullProgress, Unit

_LOG_EVERY_SECONDS = 5.0


@contextmanager
def pull_progress(console: Console) -> Generator[PullProgress]:
    shown = BarProgress(console) if console.is_terminal else LineProgress(console)
    try:
        yield shown
    except BaseException:
        shown.end(complete=False)
        raise
    shown.end(complete=True)


class BarProgress:
    """One bar a step; a finished one stays on the screen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None

    def step(self, name: str, total: int, unit: Unit = "bytes") -> None:
        self.end(complete=True)
        self._bar = Progress(*_columns(unit), console=self._console)
        self._bar.add_task(name, total=total or None)
        self._bar.start()

    def at(self, done: int) -> None:
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def note(self, line: str) -> None:
        self._console.print(f"  {line}", markup=False, highlight=False)

    def end(self, *, complete: bool) -> None:
        if self._bar is None:
            return
        task = self._bar.tasks[0]
        if complete and task.total is not None:
            self._bar.update(task.id, completed=task.total)
        self._bar.stop()
        self._bar = None


class LineProgress:
    """For output that nobody watches: the start of a step, every few seconds how far, its end."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._name = ""
        self._total = 0
        self._unit: Unit = "bytes"
        self._started = 0.0
        self._said = 0.0

    def step(self, name: str, total: int, unit: Unit = "bytes") -> None:
        self.end(complete=True)
        self._name, self._total, self._unit = name, total, unit
        self._started = self._said = self._clock()
        self.note(f"{name} ({total / 1e6:.0f} MB)" if unit == "bytes" and total else name)

    def at(self, done: int) -> None:
        if self._total and self._clock() - self._said >= _LOG_EVERY_SECONDS:
            self._said = self._clock()
            self.note(f"{self._name}: {100 * done // self._total} %")

    def note(self, line: str) -> None:
        self._console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)

    def end(self, *, complete: bool) -> None:
        if self._name and complete:
            self.note(f"{self._name}: done ({self._clock() - self._started:.1f} s)")
        self._name = ""


def _columns(unit: Unit) -> tuple[ProgressColumn, ...]:
    common = (TextColumn("  {task.description:<36}"), BarColumn(bar_width=28), TaskProgressColumn())
    amount = (DownloadColumn(), TransferSpeedColumn()) if unit == "bytes" else ()
    return (*common, *amount, TimeElapsedColumn())
