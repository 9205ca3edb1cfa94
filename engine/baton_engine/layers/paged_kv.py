"""The tensors of paged keys and values, for attention in torch operators. Owns their layout.

K and V are each one tensor a layer: (KV heads, slots, head_dim), so that a page of one head is one run of
memory and gathering pages copies whole runs. Behind the pool's blocks lies one more, the spare one: it stands
in where a shape is wider than what a request has. What is read there has weight 0, what is stored there
counts for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from baton_engine.layers.attention import KVShape, Span


class PagedKV:
    def __init__(self, shape: KVShape, num_blocks: int, device: torch.device) -> None:
        self.shape = shape
        self.block_size = shape.block_size
        self.device = device
        self.spare_block = num_blocks
        num_slots = (num_blocks + 1) * shape.block_size
        size = (shape.num_layers, shape.num_kv_heads, num_slots, shape.head_dim)
        self._scratch = torch.empty(2, 0, dtype=shape.dtype, device=device)
        self._k = _zeros(size, shape.dtype, device)
        self._v = _zeros(size, shape.dtype, device)

    def slots(self, spans: Sequence[Span]) -> Tensor:
        """Where the tokens of the spans are stored, behind one another."""
        return self.indices(
            [self.slot_of(span.block_ids, at) for span in spans for at in range(span.start, span.end)]
        )

    def slot_of(self, block_ids: Sequence[int], place: int) -> int:
        return block_ids[place // self.block_size] * self.block_size + place % self.block_size

    def pages_of(self, span: Span) -> Sequence[int]:
        """The blocks that hold the span's tokens and all before them."""
        return span.block_ids[: -(-span.end // self.block_size)]

    def indices(self, values: Sequence[int]) -> Tensor:
        return indices(values, self.device)

    def store(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """k, v (tokens, KV heads, head_dim)."""
        self._k[layer].index_copy_(1, slots, k.transpose(0, 1))
        self._v[layer].index_copy_(1, slots, v.transpose(0, 1))

    def of_layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V themselves, (KV heads, slots, head_dim), for a kernel that knows its way through pages."""
        return self._k[layer], self._v[layer]

    def gather(self, layer: int, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Both as (KV heads, pages × block_size, head_dim), valid until the next gather."""
        heads, run = self.shape.num_kv_heads, self.block_size * self.shape.head_dim
        outs = self._places(heads * pages.numel() * run)
        gathered: list[Tensor] = []
        for cache, out in zip((self._k[layer], self._v[layer]), outs, strict=True):
            by_page = out.view(heads, -1, run)
            torch.index_select(cache.view(heads, -1, run), 1, pages, out=by_page)
            gathered.append(by_page.view(heads, -1, self.shape.head_dim))
        return gathered[0], gathered[1]

    def _places(self, count: int) -> Sequence[Tensor]:
        """On a CPU in memory that is kept: new tensors would cost a page fault for each 4 KiB, in every
        layer. On a GPU torch keeps memory itself, and a captured graph must not use what is replaced later.
        """
        if self.device.type != "cpu":
            return [torch.empty(count, dtype=self.shape.dtype, device=self.device) for _ in range(2)]
        if self._scratch.shape[1] < count:
            self._scratch = torch.empty(2, 2 * count, dtype=self.shape.dtype)
        return [scratch[:count] for scratch in self._scratch]


def indices(values: Sequence[int], device: torch.device) -> Tensor:
    """int64, on the device. To a GPU through pinned memory: such a copy does not wait for what runs there."""
    here = torch.tensor(values, dtype=torch.int64)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, not garbage: a masked place has weight 0, and 0 × NaN would still be NaN.

    On a CPU the memory comes from calloc, which torch.zeros does not use: pages of the pool that no request
    has reached yet cost nothing.
    """
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    num_bytes = math.prod(size) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(size)
