"""A lock on a file that the kernel drops when its holder dies: there are no stale ones."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path


class LockHeld(Exception):
    """Somebody else holds it; `pid` is theirs, if they wrote it down."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


@contextmanager
def locked(path: Path, *, wait: Callable[[int | None], None] | None = None) -> Generator[None]:
    """Holds `path` for the body. If it is taken: raises LockHeld, or with `wait` calls it and then waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if wait is None:
                raise LockHeld(_pid(path)) from None
            wait(_pid(path))
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _pid(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
