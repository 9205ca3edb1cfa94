"""Attention over paged KV in plain torch operators: the reference, and the fallback where no kernel is built.

Layout of K and V, each one tensor a layer: (KV heads, slots, head_dim), so that a page of one head is one run
of memory and gathering pages copies whole runs. A KV head's query heads are treated as rows of its sequence:
grouped heads cost no copy of K or V.

Spans of one token (decodes) go together through one batched multiplication over their gathered, padded pages;
longer spans (prompt chunks) go one by one, PREFILL_ROWS query tokens at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from baton_engine.layers.attention import KVShape, Span

PREFILL_ROWS = 128  # of 64, 128 and 256 the fastest at 512 tokens on a core with 1 MiB of L2


@dataclass(frozen=True)
class DecodeGroup:
    """rows: places in the flat token dimension. pages: block ids, one padded row of `length` slots a request,
    flattened. masks (requests, 1, length), made once a step for each window that a layer has, are 0 where a
    token may be seen, -inf elsewhere."""

    rows: Tensor
    pages: Tensor
    ends: Tensor
    length: int
    masks: dict[int | None, Tensor] = field(default_factory=dict["int | None", Tensor])


@dataclass(frozen=True)
class PrefillChunk:
    """Tokens [first, last) of the flat dimension, behind `context` earlier tokens in the same pages."""

    first: int
    last: int
    pages: Tensor
    context: int


@dataclass(frozen=True)
class TorchPlan:
    slots: Tensor
    decodes: DecodeGroup | None
    prefills: tuple[PrefillChunk, ...]


class TorchAttention:
    def __init__(self, shape: KVShape, num_blocks: int, device: torch.device) -> None:
        self.shape = shape
        self.block_size = shape.block_size
        self.device = device
        self.scale = 1.0 / math.sqrt(shape.head_dim)
        size = (shape.num_layers, shape.num_kv_heads, num_blocks * shape.block_size, shape.head_dim)
        hidden = torch.full((PREFILL_ROWS, PREFILL_ROWS), -torch.inf, dtype=shape.dtype, device=device)
        self._triangle = hidden.triu_(1)
        self._scratch = torch.empty(2, 0, dtype=shape.dtype, device=device)
        self._k = _zeros(size, shape.dtype, device)
        self._v = _zeros(size, shape.dtype, device)

    def plan(self, spans: Sequence[Span]) -> TorchPlan:
        slots = [slot for span in spans for slot in self._slots(span)]
        decodes: list[tuple[int, Span]] = []
        prefills: list[PrefillChunk] = []
        row = 0
        for span in spans:
            if span.length == 1:
                decodes.append((row, span))
            else:
                prefills.append(self._plan_prefill(row, span))
            row += span.length
        group = self._plan_decodes(decodes) if decodes else None
        return TorchPlan(self._indices(slots), group, tuple(prefills))

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: TorchPlan, window: int | None = None
    ) -> Tensor:
        keys, values = self._k[layer], self._v[layer]
        keys.index_copy_(1, plan.slots, k.transpose(0, 1))
        values.index_copy_(1, plan.slots, v.transpose(0, 1))
        if plan.decodes is not None and not plan.prefills:
            return self._decode(q, keys, values, plan.decodes, window)
        out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
        if plan.decodes is not None:
            rows = plan.decodes.rows
            out[rows] = self._decode(q[rows], keys, values, plan.decodes, window)
        for chunk in plan.prefills:
            rows = slice(chunk.first, chunk.last)
            out[rows] = self._prefill(q[rows], keys, values, chunk, window)
        return out

    def _slots(self, span: Span) -> list[int]:
        size = self.block_size
        return [span.block_ids[at // size] * size + at % size for at in range(span.start, span.end)]

    def _indices(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).to(self.device)

    def _plan_decodes(self, decodes: Sequence[tuple[int, Span]]) -> DecodeGroup:
        num_pages = [-(-span.end // self.block_size) for _, span in decodes]
        width = max(num_pages)
        pages: list[int] = []
        for (_, span), count in zip(decodes, num_pages, strict=True):
            pages += [*span.block_ids[:count], *([0] * (width - count))]
        ends = self._indices([span.end for _, span in decodes])
        rows = self._indices([row for row, _ in decodes])
        return DecodeGroup(rows, self._indices(pages), ends, width * self.block_size)

    def _mask(self, group: DecodeGroup, window: int | None) -> Tensor:
        if window not in group.masks:
            places = torch.arange(group.length, device=self.device)
            hidden = places >= group.ends[:, None]
            if window is not None:
                hidden |= places < group.ends[:, None] - window
            mask = torch.zeros(hidden.shape, dtype=self.shape.dtype, device=self.device)
            group.masks[window] = mask.masked_fill_(hidden, -torch.inf)[:, None, :]
        return group.masks[window]

    def _plan_prefill(self, row: int, span: Span) -> PrefillChunk:
        pages = self._indices(span.block_ids[: -(-span.end // self.block_size)])
        return PrefillChunk(row, row + span.length, pages, span.start)

    def _gather(self, keys: Tensor, values: Tensor, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Both as (KV heads, pages × block_size, head_dim), valid until the next gather.

        They lie in memory that is kept: new tensors would cost a page fault for each 4 KiB, in every layer.
        """
        heads, run = self.shape.num_kv_heads, self.block_size * self.shape.head_dim
        count = heads * pages.numel() * run
        if self._scratch.shape[1] < count:
            self._scratch = keys.new_empty(2, 2 * count)
        gathered: list[Tensor] = []
        for cache, scratch in zip((keys, values), self._scratch, strict=True):
            out = scratch[:count].view(heads, -1, run)
            torch.index_select(cache.view(heads, -1, run), 1, pages, out=out)
            gathered.append(out.view(heads, -1, self.shape.head_dim))
        return gathered[0], gathered[1]

    def _decode(
        self, q: Tensor, keys: Tensor, values: Tensor, group: DecodeGroup, window: int | None
    ) -> Tensor:
        requests, heads, dim = q.shape
        kv_heads = self.shape.num_kv_heads
        k, v = (
            gathered.view(kv_heads, requests, -1, dim) for gathered in self._gather(keys, values, group.pages)
        )
        rows = (q * self.scale).view(requests, kv_heads, heads // kv_heads, dim).transpose(0, 1)
        scores = torch.matmul(rows, k.transpose(2, 3)).add_(self._mask(group, window))
        weights = torch.softmax(scores, dim=-1)  # sums in float32 whatever the dtype
        return torch.matmul(weights, v).transpose(0, 1).reshape(requests, heads * dim)

    def _prefill(
        self, q: Tensor, keys: Tensor, values: Tensor, chunk: PrefillChunk, window: int | None
    ) -> Tensor:
        """Some query rows at a time, over the keys up to their own end: half of the scores are never made."""
        length, heads, dim = q.shape
        kv_heads = self.shape.num_kv_heads
        group = heads // kv_heads
        k, v = self._gather(keys, values, chunk.pages)
        rows = (q * self.scale).view(length, kv_heads, group, dim).transpose(0, 1)
        out = q.new_empty(length, kv_heads, group, dim)
        for first in range(0, length, PREFILL_ROWS):
            block = rows[:, first : first + PREFILL_ROWS]
            size = block.shape[1]
            end = chunk.context + first + size
            begin = 0 if window is None else max(0, end - size + 1 - window)  # what the first row still sees
            scores = torch.bmm(block.reshape(kv_heads, size * group, dim), k[:, begin:end].transpose(1, 2))
            by_row = scores.view(kv_heads, size, group, end - begin)
            by_row[..., end - begin - size :].add_(self._triangle[:size, :size].unsqueeze(1))
            if window is not None:
                by_row.masked_fill_(self._out_of_window(begin, end, size, window), -torch.inf)
            attended = torch.bmm(torch.softmax(scores, dim=-1), v[:, begin:end])
            out[first : first + size] = attended.view(kv_heads, size, group, dim).transpose(0, 1)
        return out.view(length, heads * dim)

    def _out_of_window(self, begin: int, end: int, size: int, window: int) -> Tensor:
        """(size, 1, end - begin): True where one of the last `size` tokens no longer sees a key."""
        places = torch.arange(begin, end, device=self.device)
        return (places <= places[-size:, None] - window).unsqueeze(1)


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, not garbage: a masked place has weight 0, and 0 × NaN would still be NaN.

    On a CPU the memory comes from calloc, which torch.zeros does not use: pages of the pool that no request
    has reached yet cost nothing.
    """
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    num_bytes = math.prod(size) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(size)
