"""One of K and V as it is kept: in floats, or in int8 with a scale for each token and KV head.

Owns the memory and the arithmetic of int8; knows slots and pages, not whose they are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from baton_engine.layers.attention import KVShape

LARGEST_CODE = 127
SMALLEST_PEAK = 1e-30  # under it a head counts as zeros: the reciprocal would not be finite (as in csrc)


class Int8Rows(NamedTuple):
    """codes (..., head_dim) int8; scales (...) float32."""

    codes: Tensor
    scales: Tensor


def to_int8(values: Tensor) -> Int8Rows:
    """Symmetric, by each row's largest value: code = round(127 × value / largest). It depends on nothing but
    the row. A NaN or an infinity becomes its row's scale, so that it is not lost.
    """
    values = values.float()
    peak = values.abs().amax(-1)
    factor = torch.where(peak > SMALLEST_PEAK, LARGEST_CODE / peak, 0.0)
    codes = (values * factor.unsqueeze(-1)).nan_to_num_(0.0).round_()
    return Int8Rows(codes.to(torch.int8), peak / LARGEST_CODE)


class KeptValues:
    """(layers, KV heads, slots, head_dim). What is gathered comes in the dtype that is computed with."""

    def __init__(self, shape: KVShape, num_slots: int, device: torch.device) -> None:
        self.shape = shape
        self.device = device
        by_slot = (shape.num_layers, shape.num_kv_heads, num_slots)
        self.values = _zeros((*by_slot, shape.head_dim), shape.kept, device)
        self.scales = _zeros(by_slot, torch.float32, device) if shape.kept == torch.int8 else None
        self._kept = _Scratch(shape.kept, device)
        self._out = _Scratch(shape.dtype, device)
        self._gathered_scales = _Scratch(torch.float32, device)

    def store(self, layer: int, slots: Tensor, new: Tensor) -> None:
        """new (tokens, KV heads, head_dim)."""
        new = new.transpose(0, 1)
        if self.scales is not None:
            new, scales = to_int8(new)
            self.scales[layer].index_copy_(1, slots, scales)
        self.values[layer].index_copy_(1, slots, new.to(self.shape.kept))

    def gather(self, layer: int, pages: Tensor) -> Tensor:
        """(KV heads, pages × block_size, head_dim), valid until the next gather."""
        dim, block_size = self.shape.head_dim, self.shape.block_size
        kept = _pages_of(self.values[layer], pages, block_size * dim, self._kept)
        kept = kept.view(kept.shape[0], -1, dim)
        if self.scales is not None:
            scales = _pages_of(self.scales[layer], pages, block_size, self._gathered_scales)
            out = self._out.take(kept.numel()).view(kept.shape)
            return torch.mul(kept, scales.flatten(1).unsqueeze(-1), out=out)
        if self.shape.kept == self.shape.dtype:
            return kept
        return self._out.take(kept.numel()).view(kept.shape).copy_(kept)


def _pages_of(cache: Tensor, pages: Tensor, run: int, scratch: _Scratch) -> Tensor:
    """(KV heads, pages, run): whole runs of memory are copied."""
    heads = cache.shape[0]
    out = scratch.take(heads * pages.numel() * run).view(heads, -1, run)
    return torch.index_select(cache.view(heads, -1, run), 1, pages, out=out)


class _Scratch:
    """On a CPU memory that is kept: new tensors would cost a page fault for each 4 KiB, in every layer. On a
    GPU torch keeps memory itself, and a captured graph must not use what is replaced later.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._tensor = torch.empty(0, dtype=dtype, device=device)

    def take(self, count: int) -> Tensor:
        if self._tensor.device.type != "cpu":
            return self._tensor.new_empty(count)
        if self._tensor.numel() < count:
            self._tensor = self._tensor.new_empty(2 * count)
        return self._tensor[:count]


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, not garbage: a masked place has weight 0, and 0 × NaN would still be NaN.

    On a CPU the memory comes from calloc, which torch.zeros does not use: pages of the pool that no request
    has reached yet cost nothing.
    """
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    num_bytes = math.prod(size) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(size)
