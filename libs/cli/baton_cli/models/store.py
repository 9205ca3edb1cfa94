"""$BATON_HOME/models: which models are there, each a Hugging Face folder with a `baton-model.json`.

A folder appears whole or not at all: it is made under a hidden name and renamed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path

MANIFEST = "baton-model.json"


@dataclass(frozen=True)
class Manifest:
    """Where a model on this machine came from."""

    name: str
    source: str
    licence: str
    licence_stated_in: str
    sha256: str
    """Of the fetched file; for a hub repository its commit; empty for a folder of the user's own."""
    pulled_at: str
    """UTC, ISO 8601."""
    context_length: int | None = None
    size_class: str | None = None


@dataclass(frozen=True)
class InstalledModel:
    path: Path
    manifest: Manifest
    size_bytes: int


class ModelStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def lock(self) -> Path:
        return self.folder / ".lock"

    def path(self, name: str) -> Path:
        return self.folder / name

    def work_folder(self, name: str) -> Path:
        """What an unfinished pull has got so far; the next one goes on from it."""
        return self.folder / ".pull" / name

    def find(self, name: str) -> InstalledModel | None:
        manifest = _read(self.path(name) / MANIFEST)
        if manifest is None:
            return None
        return InstalledModel(self.path(name), manifest, _folder_bytes(self.path(name)))

    def installed(self) -> list[InstalledModel]:
        names = sorted(manifest.parent.name for manifest in self.folder.glob(f"*/{MANIFEST}"))
        return [model for name in names if (model := self.find(name)) is not None]

    def adopt(self, built: Path, manifest: Manifest) -> InstalledModel:
        """Gives the finished folder its name. One that had it before is replaced."""
        (built / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.path(manifest.name)
        old = self.folder / f".old-{manifest.name}"
        shutil.rmtree(old, ignore_errors=True)
        if place.exists():
            place.rename(old)
        built.rename(place)
        shutil.rmtree(old, ignore_errors=True)
        return InstalledModel(place, manifest, _folder_bytes(place))


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _read(file: Path) -> Manifest | None:
    """None for a folder without a readable manifest: it is not a model of ours."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        known = {field.name for field in fields(Manifest)}
        return Manifest(**{key: value for key, value in values.items() if key in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
