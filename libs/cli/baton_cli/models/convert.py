"""A GGUF file to a Hugging Face folder, by the engine's converter in a process of its own.

This package does not import the engine; the converter's command line is all that it knows.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from baton_cli.errors import ConversionFailed
from baton_cli.models.fetch import PullProgress
from baton_cli.processes import die_with_parent

_CONVERTER = "baton_engine.weights.convert"
_PERCENT = re.compile(r"(\d+) %")


class Converter(Protocol):
    def __call__(self, source: Path, destination: Path, progress: PullProgress) -> None:
        """Makes `destination`; reports progress in percent. Raises ConversionFailed."""
        ...


def convert_with_engine(source: Path, destination: Path, progress: PullProgress) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", _CONVERTER, str(source), str(destination)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
    )
    last = ""
    try:
        for line in process.stderr or ():
            last = line.strip() or last
            if match := _PERCENT.search(line):
                progress.at(int(match[1]))
    except BaseException:
        process.kill()
        raise
    finally:
        code = process.wait()
    if code:
        reason = last.removeprefix("error: ")
        raise ConversionFailed(source.name, reason or f"the converter ended with {code}")
