"""A catalog model's file from its packages: fetched, verified, joined. Goes on where an earlier try stopped.

Every archive is checked against the catalog before it counts; the joined file is checked again. What is
wrong is removed, so that nobody builds on it.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

from baton_cli.errors import DigestMismatch, DownloadFailed
from baton_cli.models.pip_client import PackageClient
from baton_common.catalog_models import CatalogModel, Digest, Part

_BLOCK_BYTES = 1 << 20
Unit = Literal["bytes", "percent"]


class PullProgress(Protocol):
    """How far a pull is, for people."""

    def step(self, name: str, total: int, unit: Unit = "bytes") -> None:
        """A step begins; `total` 0: its length is unknown."""
        ...

    def at(self, done: int) -> None: ...

    def note(self, line: str) -> None: ...


def fetch(model: CatalogModel, work: Path, client: PackageClient, progress: PullProgress) -> Path:
    """The model's file in `work`. Raises DownloadFailed or DigestMismatch."""
    joined = work / model.file_name
    if joined.is_file() and digest_of(joined) == model.checked_file:
        return joined
    work.mkdir(parents=True, exist_ok=True)
    _check_space(model, work)
    progress.step(f"{model.name}: download", model.download_bytes)
    archives: list[Path] = []
    done_bytes = 0
    for index, part in enumerate(model.source.parts):
        folder = work / f"part-{index + 1:02}"
        archives.append(_archive(part, folder, client, _offset(progress, done_bytes)))
        done_bytes += part.archive.size_bytes
        progress.at(done_bytes)
    _join(model, archives, joined, progress)
    for archive in archives:
        shutil.rmtree(archive.parent)
    return joined


def digest_of(file: Path, passed: Callable[[int], None] | None = None) -> Digest:
    sha256 = hashlib.sha256()
    size_bytes = 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            sha256.update(block)
            size_bytes += len(block)
            if passed:
                passed(size_bytes)
    return Digest(size_bytes, sha256.hexdigest())


def _offset(progress: PullProgress, before_bytes: int) -> Callable[[int], None]:
    return lambda part_bytes: progress.at(before_bytes + part_bytes)


def _check_space(model: CatalogModel, work: Path) -> None:
    """Archives, the joined file and the converted folder (16 bits where the file has about 4.5) at once."""
    needed = model.download_bytes + 5 * model.checked_file.size_bytes
    free = shutil.disk_usage(work).free
    if free < needed:
        reason = f"{work} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed"
        raise DownloadFailed(model.name, reason)


def _archive(part: Part, folder: Path, client: PackageClient, progressed: Callable[[int], None]) -> Path:
    """A verified archive from an earlier try, or a new one."""
    kept = sorted(folder.glob("*")) if folder.is_dir() else []
    if len(kept) == 1 and digest_of(kept[0]) == part.archive:
        return kept[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    client.download(part.package, part.version, folder, progressed)
    found = sorted(folder.glob("*"))
    if len(found) != 1:
        raise DownloadFailed(f"{part.package}=={part.version}", f"pip left {len(found)} files, expected one")
    _verify(found[0], part.archive)
    return found[0]


def _verify(file: Path, expected: Digest) -> None:
    found = digest_of(file)
    if found != expected:
        file.unlink()
        raise DigestMismatch(file.name, expected.sha256, found.sha256)


def _join(model: CatalogModel, archives: list[Path], joined: Path, progress: PullProgress) -> None:
    progress.step(f"{model.name}: unpack", model.checked_file.size_bytes)
    partial = joined.with_name(f"{joined.name}.partial")
    done_bytes = 0
    with partial.open("wb") as out:
        for part, archive in zip(model.source.parts, archives, strict=True):
            with _member(part, archive) as member:
                while block := member.read(_BLOCK_BYTES):
                    done_bytes += out.write(block)
                    progress.at(done_bytes)
    progress.step(f"{model.name}: verify", model.checked_file.size_bytes)
    found = digest_of(partial, progress.at)
    if found != model.checked_file:
        partial.unlink()
        raise DigestMismatch(model.file_name, model.checked_file.sha256, found.sha256)
    partial.rename(joined)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@contextmanager
def _member(part: Part, archive: Path) -> Generator[_Readable]:
    try:
        with zipfile.ZipFile(archive) as package, package.open(part.member) as member:
            yield member
    except (KeyError, zipfile.BadZipFile) as error:
        what = f"{part.package}=={part.version}"
        raise DownloadFailed(what, f"its archive has no readable {part.member}: {error}") from error
