"""Memory of large tensors goes back to the system when they are freed. Knows glibc; elsewhere it does
nothing.

Left alone, glibc keeps freed blocks of up to 32 MiB for later. While a model is loaded each weight passes
through several forms, so a process would go on holding about twice what its weights need.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Generator
from contextlib import contextmanager

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD in malloc.h
_WHILE_LOADING_BYTES = 1 << 20
_AFTERWARDS_BYTES = 32 << 20  # as high as glibc itself would let it grow: steps shall not pay for page faults


@contextmanager
def large_blocks_returned() -> Generator[None]:
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, _WHILE_LOADING_BYTES)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, _AFTERWARDS_BYTES)
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
