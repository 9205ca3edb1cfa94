from __future__ import annotations

from pathlib import Path

import pytest

from baton_engine.memory import available_bytes

MIB = 2**20
MEMINFO = """\
MemTotal:       24684544 kB
MemFree:          153600 kB
MemAvailable:   20480000 kB
HugePages_Total:       0
"""


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    file = tmp_path / "meminfo"
    file.write_text(MEMINFO)
    return file


def container(folder: Path, limit: str, used: int, cached: int) -> Path:
    folder.mkdir()
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon {used - cached}\nfile {cached}\n")
    return folder


def test_what_the_page_cache_holds_counts_as_free(meminfo: Path, tmp_path: Path) -> None:
    assert available_bytes(meminfo, tmp_path / "none") == 20_000 * MIB


def test_the_limit_of_a_container_is_kept(meminfo: Path, tmp_path: Path) -> None:
    limited = container(tmp_path / "limited", str(2048 * MIB), used=1500 * MIB, cached=1000 * MIB)
    assert available_bytes(meminfo, limited) == 1548 * MIB


def test_a_container_without_a_limit_has_the_machine(meminfo: Path, tmp_path: Path) -> None:
    assert available_bytes(meminfo, container(tmp_path / "free", "max", used=MIB, cached=0)) == 20_000 * MIB


def test_where_linux_files_are_missing_there_is_still_an_answer(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "no", tmp_path / "none") > 64 * MIB
