"""Child processes that can't outlive this one, whatever ends it."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
from collections.abc import Callable, Sequence

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if platform.system() == "Linux" else None


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """A `preexec_fn`: the kernel sends `how` to the child when this process ends, kill -9 included.

    Only Linux has this; elsewhere None, and a supervisor that is killed leaves its children behind.
    """
    if _LIBC is None:
        return None
    libc = _LIBC
    parent = os.getpid()

    def arm() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
        if os.getppid() != parent:  # it died between the fork and here
            os._exit(1)

    return arm


def follow(command: Sequence[str], on_line: Callable[[str], None]) -> int:
    """Runs `command`, hands on each line of its output and complaints, and returns its exit code.

    An exception, Ctrl-C included, takes the child along.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
    ) as process:
        try:
            for line in process.stdout or ():
                on_line(line.strip())
        except BaseException:
            process.kill()
            raise
    return process.returncode
