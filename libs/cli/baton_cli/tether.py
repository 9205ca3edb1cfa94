"""Run as a program: ties itself to its parent's life, then becomes the command.

`python tether.py SIGNAL PARENT COMMAND…`. A program of its own and not a `preexec_fn`: in a process that has
threads, Python code between fork and exec can wait for ever for a lock that a thread held at the fork.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main(how: int, parent: int, command: list[str]) -> None:
    """The kernel sends `how` when the parent ends, kill -9 included; that stays so in what comes after."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the command is the caller's own


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
