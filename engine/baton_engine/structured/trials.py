"""Runs grammars through `trial.py`, each within its seconds. Owns that process: one that takes too long or
dies is ended and replaced. Knows grammars as texts only.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

from baton_engine.structured.output import UnusableStructure

_PROGRAM = Path(__file__).with_name("trial.py")


class Trials:
    """For one thread. The process starts with the first grammar, and ends with this object."""

    def __init__(self, limits: dict[str, Any], seconds: float) -> None:
        self._limits = json.dumps(limits)
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[Any, Any] | None = None

    def check(self, grammar: str) -> None:
        """Raises UnusableStructure."""
        answer = self._ask(grammar)
        if answer is None:
            self.close()
            raise UnusableStructure(f"it takes over {self._seconds:g} s to compile, or too much memory.")
        complaint: str = json.loads(answer)
        if complaint:
            raise UnusableStructure(complaint)

    def close(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def _ask(self, grammar: str) -> bytes | None:
        """The process's line; None if none came in time."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(grammar).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        answered = select.poll()  # select.select knows no file numbers over 1,023
        answered.register(process.stdout, select.POLLIN)
        return process.stdout.readline() or None if answered.poll(self._seconds * 1000) else None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            command = [sys.executable, "-P", str(_PROGRAM), self._limits]
            self._process = subprocess.Popen(  # noqa: S603  (our own program)
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self._end = weakref.finalize(self, _end, self._process, os.getpid())
        return self._process


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the owner: the process is not its child, waiting would never end
        return
    process.kill()
    process.communicate()
