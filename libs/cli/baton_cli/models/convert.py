"""A GGUF file to a Hugging Face folder, by the engine's converter in a process of its own.

This package does not import the engine; the converter's command line is all that it knows.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Protocol

from baton_cli.errors import ConversionFailed
from baton_cli.models.fetch import PullProgress
from baton_cli.processes import follow

_CONVERTER = "baton_engine.weights.convert"
_PERCENT = re.compile(r"(\d+) %")


class Converter(Protocol):
    def __call__(self, source: Path, destination: Path, progress: PullProgress) -> None:
        """Makes `destination`; reports progress in percent. Raises ConversionFailed."""
        ...


def convert_with_engine(source: Path, destination: Path, progress: PullProgress) -> None:
    said: list[str] = []

    def heard(line: str) -> None:
        if match := _PERCENT.search(line):
            progress.at(int(match[1]))
        elif line:
            said.append(line)

    code = follow([sys.executable, "-m", _CONVERTER, str(source), str(destination)], heard)
    if code:
        reason = said[-1].removeprefix("error: ") if said else f"the converter ended with {code}"
        raise ConversionFailed(source.name, reason)
