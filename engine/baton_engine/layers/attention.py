"""The narrow face behind which attention over paged KV lives, so that a native kernel can take its place.

A backend owns the KV tensors and their layout; all else sees block ids and positions.
Once a step: `plan(spans)`. Then once a layer: `attend`, which stores the new keys and values and attends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

SCALE_BYTES = 4


@dataclass(frozen=True)
class KVShape:
    """dtype: what is computed with. kv_dtype: what K and V are kept in; None: the same.

    bytes_per_token is 2 × layers × KV heads × head dim × bytes. In int8 each token's K and V of a head have a
    scale of 4 bytes.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    kv_dtype: torch.dtype | None = None

    @property
    def kept(self) -> torch.dtype:
        return self.kv_dtype or self.dtype

    @property
    def bytes_per_token(self) -> int:
        scale = SCALE_BYTES if self.kept == torch.int8 else 0
        return 2 * self.num_layers * self.num_kv_heads * (self.head_dim * self.kept.itemsize + scale)

    @property
    def bytes_per_block(self) -> int:
        return self.bytes_per_token * self.block_size


@dataclass(frozen=True)
class Span:
    """One request's part of a step: tokens [start, start + length) of it, whose blocks are block_ids.

    The spans of a step lie behind one another in the flat token dimension, in the order given.
    """

    start: int
    length: int
    block_ids: Sequence[int]

    @property
    def end(self) -> int:
        return self.start + self.length


PlanT = TypeVar("PlanT")


class AttentionBackend(Protocol[PlanT]):
    """PlanT is what a backend works out once a step; opaque to the model."""

    def plan(self, spans: Sequence[Span]) -> PlanT: ...

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: PlanT, window: int | None = None
    ) -> Tensor:
        """q (tokens, heads, head_dim), k and v (tokens, KV heads, head_dim) → (tokens, heads × head_dim).

        A token sees itself and the window - 1 tokens before it; all of them if window is None.
        """
        ...
