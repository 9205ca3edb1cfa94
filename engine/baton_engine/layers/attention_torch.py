"""Attention over paged KV in plain torch operators: the reference, and the fallback where no kernel is built.

K and V lie in a `PagedKV`. A KV head's query heads are treated as rows of its sequence: grouped heads cost no
copy of K or V.

Spans of one token (decodes) of about the same length go together through one batched multiplication over
their gathered, padded pages; longer spans (prompt chunks) go one by one, PREFILL_ROWS query tokens at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.paged_kv import PagedKV

PREFILL_ROWS = 128  # of 64, 128 and 256 the fastest at 512 tokens on a core with 1 MiB of L2
ALIKE_BELOW = 512  # tokens; shorter requests share a group whatever their lengths
MOST_GATHERED = 262_144  # tokens that a group gathers at once: 256 MiB a layer at 1 KiB of K and V a token


@dataclass(frozen=True)
class DecodeGroup:
    """rows: places in the flat token dimension. pages: block ids, one padded row of `length` slots a request,
    flattened. stale: which of the gathered slots hold what an earlier owner of a last page left; None: all
    that is masked is to be taken for that. masks (requests, 1, length), made once a step for each window that
    a layer has, are 0 where a token may be seen, -inf elsewhere.
    """

    rows: Tensor
    pages: Tensor
    ends: Tensor
    length: int
    stale: Tensor | None = None
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
    decodes: tuple[DecodeGroup, ...]
    prefills: tuple[PrefillChunk, ...]


class TorchAttention:
    def __init__(self, shape: KVShape, num_blocks: int, device: torch.device) -> None:
        self.shape = shape
        self.device = device
        self.kv = PagedKV(shape, num_blocks, device)
        self.scale = 1.0 / math.sqrt(shape.head_dim)
        hidden = torch.full((PREFILL_ROWS, PREFILL_ROWS), -torch.inf, dtype=shape.dtype, device=device)
        self._triangle = hidden.triu_(1)

    def plan(self, spans: Sequence[Span]) -> TorchPlan:
        decodes: list[tuple[int, Span]] = []
        prefills: list[PrefillChunk] = []
        row = 0
        for span in spans:
            if span.length == 1:
                decodes.append((row, span))
            else:
                pages = self.kv.indices(self.kv.pages_of(span))
                prefills.append(PrefillChunk(row, row + span.length, pages, span.start))
            row += span.length
        groups = [self._plan_decodes(group) for group in self._alike(decodes)]
        return TorchPlan(self.kv.slots(spans), tuple(groups), tuple(prefills))

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: TorchPlan, window: int | None = None
    ) -> Tensor:
        self.kv.store(layer, plan.slots, k, v)
        if len(plan.decodes) == 1 and not plan.prefills:
            return self._decode(layer, q, plan.decodes[0], window)
        out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
        for group in plan.decodes:
            out[group.rows] = self._decode(layer, q[group.rows], group, window)
        for chunk in plan.prefills:
            rows = slice(chunk.first, chunk.last)
            out[rows] = self._prefill(layer, q[rows], chunk, window)
        return out

    def _alike(self, decodes: Sequence[tuple[int, Span]]) -> list[list[tuple[int, Span]]]:
        """Groups in which padding to the longest at most doubles what is read, each in the order of rows."""
        groups: list[list[tuple[int, Span]]] = []
        longest = 0
        for row, span in sorted(decodes, key=lambda decode: -decode[1].end):
            alike = 2 * span.end >= longest or longest < ALIKE_BELOW
            if not groups or not alike or (len(groups[-1]) + 1) * longest > MOST_GATHERED:
                groups.append([])
                longest = span.end
            groups[-1].append((row, span))
        return [sorted(group, key=lambda decode: decode[0]) for group in groups]

    def _plan_decodes(self, decodes: Sequence[tuple[int, Span]]) -> DecodeGroup:
        tables = [self.kv.pages_of(span) for _, span in decodes]
        width = max(len(table) for table in tables)
        spare = self.kv.spare_block
        pages = [page for table in tables for page in [*table, *([spare] * (width - len(table)))]]
        indices = self.kv.indices
        ends = indices([span.end for _, span in decodes])
        rows = indices([row for row, _ in decodes])
        length = width * self.kv.block_size
        stale = [
            row * length + at
            for row, ((_, span), table) in enumerate(zip(decodes, tables, strict=True))
            for at in range(span.end, len(table) * self.kv.block_size)
        ]
        return DecodeGroup(rows, indices(pages), ends, length, indices(stale))

    def _mask(self, group: DecodeGroup, window: int | None) -> Tensor:
        if window not in group.masks:
            places = torch.arange(group.length, device=self.device)
            hidden = places >= group.ends[:, None]
            if window is not None:
                hidden |= places < group.ends[:, None] - window
            mask = torch.zeros(hidden.shape, dtype=self.shape.dtype, device=self.device)
            group.masks[window] = mask.masked_fill_(hidden, -torch.inf)[:, None, :]
        return group.masks[window]

    def _decode(self, layer: int, q: Tensor, group: DecodeGroup, window: int | None) -> Tensor:
        requests, heads, dim = q.shape
        kv_heads = self.shape.num_kv_heads
        k, v = (
            self._clean(gathered, group).view(kv_heads, requests, -1, dim)
            for gathered in self.kv.gather(layer, group.pages)
        )
        rows = (q * self.scale).view(requests, kv_heads, heads // kv_heads, dim).transpose(0, 1)
        scores = torch.matmul(rows, k.transpose(2, 3)).add_(self._mask(group, window))
        weights = torch.softmax(scores, dim=-1)  # sums in float32 whatever the dtype
        return torch.matmul(weights, v).transpose(0, 1).reshape(requests, heads * dim)

    def _clean(self, gathered: Tensor, group: DecodeGroup) -> Tensor:
        """Zeros where nothing is to be seen: a request that failed may have left NaN, and 0 × NaN is NaN."""
        if group.stale is not None:
            return gathered.index_fill_(1, group.stale, 0)
        hidden = self._mask(group, None).isneginf().view(1, -1, 1)
        return gathered.masked_fill_(hidden, 0)

    def _prefill(self, layer: int, q: Tensor, chunk: PrefillChunk, window: int | None) -> Tensor:
        """Some query rows at a time, over the keys up to their own end: half of the scores are never made."""
        length, heads, dim = q.shape
        kv_heads = self.shape.num_kv_heads
        group = heads // kv_heads
        k, v = self.kv.gather(layer, chunk.pages)
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
