"""Child processes that can't outlive this one, whatever ends it."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_TETHER = Path(__file__).with_name("tether.py")


def tethered(command: Sequence[str], how: signal.Signals = signal.SIGKILL) -> list[str]:
    """The command line of a child to which the kernel sends `how` when this process ends, kill -9 included.

    Only Linux has this; elsewhere it is the command itself, and a supervisor that is killed leaves its
    children behind. Raises FileNotFoundError, as starting the command would.
    """
    if platform.system() != "Linux":
        return list(command)
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"there is no program {command[0]}")
    python = [sys.executable, "-I", "-S", str(_TETHER)]
    return [*python, str(int(how)), str(os.getpid()), *command]


def follow(command: Sequence[str], on_line: Callable[[str], None]) -> int:
    """Runs `command`, hands on each line of its output and complaints, and returns its exit code.

    An exception, Ctrl-C included, takes the child along.
    """
    with subprocess.Popen(
        tethered(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                on_line(line.strip())
        except BaseException:
            process.kill()
            raise
    return process.returncode
