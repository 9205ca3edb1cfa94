"""One package's own file, through pip's ordinary client. Knows nothing of models.

pip decides where packages come from, as the user configured it; nothing here names a registry.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from baton_cli.errors import DownloadFailed
from baton_cli.processes import follow

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
Progressed = Callable[[int], None]
"""Called with the bytes of the current file so far."""


class PackageClient(Protocol):
    def download(self, package: str, version: str, folder: Path, progressed: Progressed) -> None:
        """Leaves exactly one archive in the empty `folder`, or raises DownloadFailed."""
        ...


class PipClient:
    def download(self, package: str, version: str, folder: Path, progressed: Progressed) -> None:
        requirement = f"{package}=={version}"
        said: list[str] = []

        def heard(line: str) -> None:
            if match := _PROGRESS.match(line):
                progressed(int(match[1]))
            else:
                said.append(line)

        options = ["--no-deps", "--only-binary", ":all:", "--progress-bar", "raw", "--no-input"]
        command = [sys.executable, "-m", "pip", "download", *options, "--disable-pip-version-check"]
        if follow([*command, "--dest", str(folder), requirement], heard):
            raise DownloadFailed(requirement, _reason(said))


def _reason(said: list[str]) -> str:
    """pip's last error, with what it tried before if that was a broken connection."""
    errors = [line for line in said if line.startswith("ERROR:")]
    broken = [line for line in said if "connection broken" in line.lower()]
    last = errors[-1].removeprefix("ERROR:").strip() if errors else (said[-1] if said else "pip said nothing")
    return f"{last} (the package index could not be reached)" if broken else last
