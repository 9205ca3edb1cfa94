"""The compiled kernels' C face. Knows no model, and not how they were compiled (`cache.py`).

The library holds the code for every instruction set and picks at run time.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from baton_engine.native.cache import NativeUnavailable, cached_library

ISA_NUMBERS = {"avx2": 1, "avx512": 2}


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
        self.c.baton_new.argtypes = [ctypes.POINTER(Shape), ctypes.POINTER(ctypes.c_void_p)]
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
        self.c.baton_tie_embedding.restype = None
        self.c.baton_tie_embedding.argtypes = [pointer]
        self.c.baton_weight_bytes.argtypes = [pointer]
        self.c.baton_weight_bytes.restype = ctypes.c_int64
        self.c.baton_set_vector.argtypes = [pointer, number, number, pointer]
        self.c.baton_set_window.restype = None
        self.c.baton_set_window.argtypes = [pointer, number, number]
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
    return NativeLibrary(cached_library())
