"""The compiled kernels: found in the cache or compiled into it, and their C face. Knows no model.

The cache is keyed by the sources, the flags and torch; the library holds the code for every instruction set
and picks at run time, so the CPU is not part of the key, and an image may carry it to machines of any kind.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-std=c++20", "-O3", "-Wno-psabi")
NAME = "baton_native"
CACHE_VARIABLE = "BATON_NATIVE_CACHE"
COMPILE_SECONDS = 300
ISA_NUMBERS = {"avx2": 1, "avx512": 2}

_log = logging.getLogger(__name__)


class NativeUnavailable(Exception):
    """No kernels here; the message says why: no compiler, a failed build, a CPU without AVX2."""


class Shape(ctypes.Structure):
    """As in csrc/model.h: same fields, same order."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "vocab_size", "hidden_size", "inner_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
            "max_positions", "block_tokens", "num_blocks", "num_threads", "isa", "kv_int8",
        )),
        ("norm_eps", ctypes.c_float),
    ]  # fmt: skip


class Step(ctypes.Structure):
    """As in csrc/model.h; the addresses must stay valid while `run` runs."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("num_tokens", "num_spans", "num_samples")),
        *((name, ctypes.c_void_p) for name in (
            "token_ids", "span_starts", "span_lengths", "table_starts", "blocks", "sample_rows", "logits",
        )),
    ]  # fmt: skip


class DrawFields(ctypes.Structure):
    """As Draw in csrc/model.h."""

    _fields_ = [
        *((name, ctypes.c_float) for name in ("temperature", "min_p")),
        *((name, ctypes.c_int32) for name in ("top_k", "greedy")),
        *((name, ctypes.c_double) for name in ("top_p", "point")),
    ]


class Weight(ctypes.Structure):
    """As in csrc/pack.h; the addresses must stay valid until it is packed."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("values", "scales", "minima", "bias")),
        *((name, ctypes.c_int32) for name in ("num_rows", "num_columns")),
    ]


class NativeLibrary:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.c = ctypes.CDLL(str(path))  # calls release the interpreter lock
        self.c.baton_new.restype = ctypes.c_void_p
        self.c.baton_new.argtypes = [ctypes.POINTER(Shape)]
        self.c.baton_delete.restype = None
        self.c.baton_delete.argtypes = [ctypes.c_void_p]
        for structure, size in (
            (Shape, self.c.baton_shape_size()),
            (Step, self.c.baton_step_size()),
            (Weight, self.c.baton_weight_size()),
            (DrawFields, self.c.baton_draw_size()),
        ):
            assert ctypes.sizeof(structure) == size, f"{structure.__name__} differs from csrc"
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self.c.baton_choose.argtypes = [
            pointer, pointer, ctypes.c_int64, number, number, ctypes.POINTER(DrawFields), pointer,
        ]  # fmt: skip
        self.c.baton_set_matrix.argtypes = [pointer, number, number, ctypes.POINTER(Weight)]
        self.c.baton_tie_embedding.argtypes = [pointer]
        self.c.baton_weight_bytes.argtypes = [pointer]
        self.c.baton_weight_bytes.restype = ctypes.c_int64
        self.c.baton_set_vector.argtypes = [pointer, number, number, pointer]
        self.c.baton_set_rotary.argtypes = [pointer, pointer, pointer]
        self.c.baton_multiply.argtypes = [ctypes.POINTER(Weight), number, pointer, number, pointer]
        self.c.baton_run.argtypes = [pointer, ctypes.POINTER(Step)]

    def isa(self, wanted: str | None = None) -> str:
        """The best instruction set that CPU and kernels share, or `wanted`. Raises NativeUnavailable."""
        best = self.c.baton_best_isa()
        usable = [name for name, number in ISA_NUMBERS.items() if number <= best]
        if not usable:
            raise NativeUnavailable("this CPU has no AVX2.")
        if wanted is not None and wanted not in usable:
            raise NativeUnavailable(f"{wanted} was asked for; here there is {', '.join(usable)}.")
        return wanted or usable[-1]


@functools.cache
def load_library() -> NativeLibrary:
    """Compiles on first use (seconds), then loads. Raises NativeUnavailable."""
    if sys.platform != "linux":
        raise NativeUnavailable(f"they are compiled on Linux only, this is {sys.platform}.")
    key = _key()
    for folder in _cache_folders():
        path = folder / f"{NAME}-{key}.so"
        if path.is_file():
            return NativeLibrary(path)
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        raise NativeUnavailable("there is no C++ compiler (c++, or what CXX names) to compile them.")
    return NativeLibrary(_compile(key))


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


def _compile(key: str) -> Path:
    """Builds beside the cache and moves the result in: whoever builds at the same time does no harm."""
    folder = _writable_folder()
    started = time.monotonic()
    sources = [str(file) for file in sorted(SOURCES.glob("*.cpp"))]
    with tempfile.TemporaryDirectory(dir=folder) as work:
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
        path = folder / f"{NAME}-{key}.so"
        built.replace(path)
    _log.info("native kernels compiled in %.0f s: %s", time.monotonic() - started, path)
    return path


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
