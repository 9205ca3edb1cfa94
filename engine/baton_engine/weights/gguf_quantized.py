"""GGUF's quantised blocks in the engine's 8- and 4-bit form. Owns which types fit in it, and how.

Q8_0 and Q5_0 become int8, Q4_0 and Q4_1 int4: all exactly. Q4_K becomes int4 with its products of two scales
rounded to float16 (a relative error of at most 2^-11 of the scale). Q6_K, Q5_1, Q5_K and Q8_1-like rest have
finer or other blocks: they are dequantised and quantised to int8 anew (an error of at most 1/254 of the
block's largest weight).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Type
from torch import Tensor

from baton_engine.layers.quantized import (
    BLOCK,
    CHUNK_ELEMENTS,
    INT8_ZERO,
    QuantizedWeight,
    join,
    pack_nibbles,
)

Raw = np.ndarray[Any, np.dtype[np.uint8]]

SUPER_BLOCK: Final = 256
REQUANTIZED: Final = frozenset({Type.Q6_K, Type.Q5_1, Type.Q5_K})


def stored_bits(quantization: Type) -> int | None:
    """The width that `exact_form`, or quantising anew, gives a matrix of this type; None: it stays in
    floats."""
    if quantization in REQUANTIZED:
        return 8
    return _BITS.get(quantization)


def exact_form(raw: Raw, quantization: Type, shape: tuple[int, ...]) -> QuantizedWeight | None:
    """raw: the tensor's bytes, rows of blocks. None: this type has no such form."""
    reader = _READERS.get(quantization)
    if reader is None or len(shape) != 2:
        return None
    rows, columns = shape
    at_once = max(1, CHUNK_ELEMENTS // columns)
    table = raw.reshape(rows, -1)
    return join([reader(table[start : start + at_once], columns) for start in range(0, rows, at_once)])


def _blocks(raw: Raw, block_bytes: int) -> Tensor:
    """(rows, blocks, block_bytes), a copy: the file's pages are not kept."""
    return torch.from_numpy(raw.reshape(raw.shape[0], -1, block_bytes).copy())


def _halves(blocks: Tensor, at: int) -> Tensor:
    """The float16 at this byte of each block."""
    return blocks[..., at : at + 2].contiguous().view(torch.float16).squeeze(-1)


def _q8_0(raw: Raw, columns: int) -> QuantizedWeight:
    blocks = _blocks(raw, 34)
    codes = blocks[..., 2:] ^ INT8_ZERO  # of a two's complement byte: plus 128
    return QuantizedWeight(codes.flatten(1), _halves(blocks, 0), None, columns)


def _q4_0(raw: Raw, columns: int) -> QuantizedWeight:
    blocks = _blocks(raw, 18)
    scales = _halves(blocks, 0)
    return QuantizedWeight(blocks[..., 2:].flatten(1), scales, (-8 * scales.float()).half(), columns)


def _q4_1(raw: Raw, columns: int) -> QuantizedWeight:
    blocks = _blocks(raw, 20)
    return QuantizedWeight(blocks[..., 4:].flatten(1), _halves(blocks, 0), _halves(blocks, 2), columns)


def _q5_0(raw: Raw, columns: int) -> QuantizedWeight:
    """The fifth bits of a block lie in four bytes of their own, in the order of k."""
    blocks = _blocks(raw, 22)
    fifth = (blocks[..., 2:6].unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8)) & 1
    low = blocks[..., 6:]
    codes = torch.cat([low & 15, low >> 4], dim=-1) | (fifth.flatten(-2) << 4)
    return QuantizedWeight((codes + (INT8_ZERO - 16)).flatten(1), _halves(blocks, 0), None, columns)


def _q4_k(raw: Raw, columns: int) -> QuantizedWeight:
    """256 weights share two float16 factors; each 32 of them have a 6-bit scale and a 6-bit minimum. The
    codes lie in runs of 64: low halves are the first 32, high halves the second."""
    blocks = _blocks(raw, 144)
    packed = blocks[..., 4:16]
    low, middle, high = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = torch.cat([low & 63, (high & 15) | ((low >> 6) << 4)], dim=-1)
    minima = torch.cat([middle & 63, (high >> 4) | ((middle >> 6) << 4)], dim=-1)
    runs = blocks[..., 16:].view(*blocks.shape[:2], SUPER_BLOCK // 64, BLOCK)
    codes = torch.stack([runs & 15, runs >> 4], dim=-2)
    return QuantizedWeight(
        pack_nibbles(codes).flatten(1),
        (_halves(blocks, 0).float().unsqueeze(-1) * scales.float()).half().flatten(1),
        (-_halves(blocks, 2).float().unsqueeze(-1) * minima.float()).half().flatten(1),
        columns,
    )


_BITS: Final = {Type.Q8_0: 8, Type.Q5_0: 8, Type.Q4_0: 4, Type.Q4_1: 4, Type.Q4_K: 4}
_READERS: Final[dict[Type, Callable[[Raw, int], QuantizedWeight]]] = {
    Type.Q8_0: _q8_0,
    Type.Q4_0: _q4_0,
    Type.Q4_1: _q4_1,
    Type.Q5_0: _q5_0,
    Type.Q4_K: _q4_k,
}
