"""While a model is loaded, large blocks come from the system one by one, so that freeing gives them back."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from baton_engine.heap import large_blocks_returned

MIB = 2**20
ROOT = Path(__file__).parents[3]
NAMES = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "a", "b", "c", "d")


class MallInfo(ctypes.Structure):
    """mallinfo2 of malloc.h: hblks is the number of blocks that are mappings of their own."""

    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]


def blocks_of_their_own(size: int) -> int:
    """How many one allocation of this size adds."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.mallinfo2.restype = ctypes.c_void_p
    libc.mallinfo2.restype = MallInfo
    libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    before = libc.mallinfo2().hblks
    block = libc.malloc(size)
    added = libc.mallinfo2().hblks - before
    libc.free(block)
    return added


def all_counts() -> list[int]:
    """In a process that has freed nothing yet: a freed block that fits would be taken again."""
    with large_blocks_returned():
        counts = [blocks_of_their_own(4 * MIB), blocks_of_their_own(100_000)]
    counts += [blocks_of_their_own(4 * MIB), blocks_of_their_own(64 * MIB)]
    with suppress(ValueError), large_blocks_returned():
        raise ValueError("fault")
    return [*counts, blocks_of_their_own(4 * MIB)]


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="this C library is no glibc",
)
def test_only_inside_and_only_for_large_ones() -> None:
    program = "from tests.unit.engine.test_heap import all_counts; print(all_counts())"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert json.loads(done.stdout) == [1, 0, 0, 1, 0]
