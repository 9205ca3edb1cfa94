"""A repository of the Hugging Face hub, through its own client. Needs a network that reaches the hub."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from baton_cli.errors import DownloadFailed
from baton_cli.models.fetch import PullProgress

WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "LICENSE*", "README.md")
"""Weights in safetensors only: other formats can run code when they are loaded."""

_POLL_SECONDS = 0.3


@dataclass(frozen=True)
class Snapshot:
    commit: str
    licence: str | None


class HubClient(Protocol):
    def snapshot(self, repository: str, folder: Path, progress: PullProgress) -> Snapshot:
        """Completes `folder` with the repository's files; files already there are kept."""
        ...


class HuggingFaceHub:
    def snapshot(self, repository: str, folder: Path, progress: PullProgress) -> Snapshot:
        # Here, because the hub's client takes half a second to import.
        from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415
        from huggingface_hub.utils import disable_progress_bars  # noqa: PLC0415

        disable_progress_bars()
        try:
            progress.step(f"{repository}: ask the hub", 0)
            info = HfApi().model_info(repository, files_metadata=True, timeout=10)
            files = [(file.rfilename, file.size or 0) for file in info.siblings or []]
            progress.step(f"{repository}: download", wanted_bytes(files))
            with _watching(folder, progress):
                snapshot_download(
                    repository, revision=info.sha, local_dir=folder, allow_patterns=list(WANTED)
                )
        except Exception as error:  # its transport's errors too, which differ from version to version
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DownloadFailed(repository, f"{reason[:300]} (is the hub within reach?)") from error
        card = info.card_data.to_dict() if info.card_data else {}
        licence = card.get("license")
        return Snapshot(info.sha or "", str(licence) if licence else None)


def wanted_bytes(files: list[tuple[str, int]]) -> int:
    return sum(size for name, size in files if any(fnmatch.fnmatch(name, pattern) for pattern in WANTED))


@contextmanager
def _watching(folder: Path, progress: PullProgress) -> Generator[None]:
    """Reports the folder's growth, unfinished files included, while the body runs."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_SECONDS):
            progress.at(_folder_bytes(folder))

    watcher = threading.Thread(target=watch, name="watch-download", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _folder_bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # renamed under our eyes: counted in the next round
            continue
    return total
