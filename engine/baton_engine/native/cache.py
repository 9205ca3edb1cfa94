"""The compiled kernels' file: found in the cache, or compiled into it. Knows no C face and no model.

The cache is keyed by the sources, the flags and torch. The CPU is not part of the key: an image may carry the
library to machines of any kind.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-std=c++20", "-O3", "-Wno-psabi")
NAME = "baton_native"
CACHE_VARIABLE = "BATON_NATIVE_CACHE"
COMPILE_SECONDS = 300
LOOK_AGAIN_SECONDS = 0.1

_log = logging.getLogger(__name__)


class NativeUnavailable(Exception):
    """No kernels here; the message says why: no compiler, a failed build, a CPU without AVX2."""


def cached_library() -> Path:
    """Compiles on first use (seconds). Raises NativeUnavailable."""
    if sys.platform != "linux":
        raise NativeUnavailable(f"they are compiled on Linux only, this is {sys.platform}.")
    key = _key()
    for folder in _cache_folders():
        path = folder / f"{NAME}-{key}.so"
        if path.is_file():
            return path
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        raise NativeUnavailable("there is no C++ compiler (c++, or what CXX names) to compile them.")
    folder = _writable_folder()
    path = folder / f"{NAME}-{key}.so"
    with _turn_in(folder):
        if not path.is_file():
            _compile(path)
    return path


def _cache_folders() -> list[Path]:
    """Where a library may lie: as configured, with the environment, with the user."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        return [Path(configured)]
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path(sys.prefix) / "share" / "baton-native", user / "baton-native"]


def _key() -> str:
    digest = hashlib.sha256("\0".join([*FLAGS, torch.__version__, platform.machine()]).encode())
    for file in sorted(SOURCES.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def _turn_in(folder: Path) -> Generator[None, None, None]:
    """One process at a time compiles into a folder; the others wait, and find what it made.

    The lock is on the folder itself and goes with its process. Who waits longer than a compilation may take,
    or can't lock (not every file system can), goes on without: building twice does no harm, it only costs.
    """
    import fcntl  # noqa: PLC0415 - not on every platform that this module can be imported on

    until = time.monotonic() + COMPILE_SECONDS
    handle = os.open(folder, os.O_RDONLY)
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOOK_AGAIN_SECONDS)
            except OSError as error:
                _log.debug("%s can't be locked: %s", folder, error)
                break
            else:
                break
        yield
    finally:
        os.close(handle)


def _compile(path: Path) -> None:
    """Builds beside the cache and moves the result in: nobody ever sees half a library."""
    started = time.monotonic()
    sources = [str(file) for file in sorted(SOURCES.glob("*.cpp"))]
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        program = Path(__file__).with_name("compile.py")
        command = [sys.executable, str(program), work, NAME, *FLAGS, "--", *sources]
        try:
            done = subprocess.run(  # noqa: S603 - our own program and files
                command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NativeUnavailable(f"compiling them took over {COMPILE_SECONDS} s.") from error
        built = Path(work) / f"{NAME}.so"
        if done.returncode != 0 or not built.is_file():
            raise NativeUnavailable(f"compiling them failed: {done.stderr.strip()[-2000:]}")
        built.replace(path)
    _log.info("native kernels compiled in %.0f s: %s", time.monotonic() - started, path)


def _writable_folder() -> Path:
    for folder in _cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    places = ", ".join(map(str, _cache_folders()))
    raise NativeUnavailable(f"none of {places} can be written to; set {CACHE_VARIABLE} to a folder.")
