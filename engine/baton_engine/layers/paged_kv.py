"""Paged keys and values, for attention in torch operators. Owns their layout; `kept_values.py` their dtype.

K and V are each one tensor a layer: (KV heads, slots, head_dim), so that a page of one head is one run of
memory and gathering pages copies whole runs. Behind the pool's blocks lies one more, the spare one: it stands
in where a shape is wider than what a request has. What is read there has weight 0, what is stored there
counts for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.kept_values import KeptValues


class PagedKV:
    def __init__(self, shape: KVShape, num_blocks: int, device: torch.device) -> None:
        self.shape = shape
        self.block_size = shape.block_size
        self.device = device
        self.spare_block = num_blocks
        num_slots = (num_blocks + 1) * shape.block_size
        self.keys = KeptValues(shape, num_slots, device)
        self.values = KeptValues(shape, num_slots, device)

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
        self.keys.store(layer, slots, k)
        self.values.store(layer, slots, v)

    def of_layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V as they are kept, (KV heads, slots, head_dim), for a kernel that finds its pages itself."""
        return self.keys.values[layer], self.values.values[layer]

    def gather(self, layer: int, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Both as (KV heads, pages × block_size, head_dim), valid until the next gather."""
        return self.keys.gather(layer, pages), self.values.gather(layer, pages)


def indices(values: Sequence[int], device: torch.device) -> Tensor:
    """int64, on the device. To a GPU through pinned memory: such a copy does not wait for what runs there."""
    here = torch.tensor(values, dtype=torch.int64)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)
