"""Attention over paged KV whose result for a token depends on that token's own past only, bit for bit.

    a tile       QUERY_ROWS places of one sequence, from a multiple of QUERY_ROWS on; empty where this step
                 computes none
    a partition  PARTITION keys of one sequence, from a multiple of that on

Both follow from a token's place in its sequence, not from how it came to be computed. TILES tiles go through
each product together, so all products have one shape. A row's partitions are merged in their order, in
float32. One in which the row sees nothing has the weight 0, exactly: so it does not matter how many
partitions others need.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.paged_kv import PagedKV

QUERY_ROWS = 4
TILES = 8  # TILES × QUERY_ROWS is a multiple of what torch puts into vectors at a time: exp has no remainder
PARTITION = 256
UNSEEN = -1e30  # not -inf: a row that sees nothing in a partition gets finite numbers there, of weight 0


class Tile(NamedTuple):
    """rows: the flat row of each place from `first` on, None where the step computes none."""

    rows: list[int | None]
    first: int
    pages: Sequence[int]


@dataclass(frozen=True)
class TileGroup:
    """rows, places (TILES, QUERY_ROWS): flat rows and places in the sequence, 0 and -1 where nothing is
    computed. pages: for each partition the blocks of all tiles, flattened. live: which of the flattened rows
    are computed, targets: their flat rows. hidden, stale: by window and partition, which
    keys a row does not see, and which lie behind all of a tile; made once a step.
    """

    rows: Tensor
    places: Tensor
    pages: tuple[Tensor, ...]
    live: Tensor
    targets: Tensor
    hidden: dict[tuple[int | None, int], Tensor] = field(
        default_factory=dict["tuple[int | None, int]", Tensor]
    )
    stale: dict[int, Tensor] = field(default_factory=dict[int, Tensor])


@dataclass(frozen=True)
class FixedPlan:
    slots: Tensor
    groups: tuple[TileGroup, ...]


class FixedShapeAttention:
    """An AttentionBackend. Rows behind the planned ones only fill up a shape, and get zeros."""

    def __init__(self, shape: KVShape, num_blocks: int, device: torch.device) -> None:
        self.shape = shape
        self.device = device
        self.kv = PagedKV(shape, num_blocks, device)
        self.scale = 1.0 / math.sqrt(shape.head_dim)
        self.pages_each = -(-PARTITION // shape.block_size)
        self.partition = self.pages_each * shape.block_size

    def plan(self, spans: Sequence[Span]) -> FixedPlan:
        tiles = list(self._tiles(spans))
        groups = [self._group(tiles[first : first + TILES]) for first in range(0, len(tiles), TILES)]
        return FixedPlan(self.kv.slots(spans), tuple(groups))

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: FixedPlan, window: int | None = None
    ) -> Tensor:
        count = plan.slots.numel()
        self.kv.store(layer, plan.slots, k[:count], v[:count])
        out = q.new_zeros(q.shape[0], q.shape[1] * q.shape[2])
        for group in plan.groups:
            out[group.targets] = self._attend_group(layer, q, group, window)
        return out

    def _tiles(self, spans: Sequence[Span]) -> Iterator[Tile]:
        row = 0
        for span in spans:
            pages = self.kv.pages_of(span)
            for first in range(span.start - span.start % QUERY_ROWS, span.end, QUERY_ROWS):
                places = range(first, first + QUERY_ROWS)
                rows = [row + at - span.start if span.start <= at < span.end else None for at in places]
                yield Tile(rows, first, pages[: -(-min(span.end, places.stop) // self.kv.block_size)])
            row += span.length

    def _group(self, tiles: Sequence[Tile]) -> TileGroup:
        empty = TILES - len(tiles)
        rows = [row for tile in tiles for row in tile.rows] + [None] * (empty * QUERY_ROWS)
        places = [
            -1 if row is None else tile.first + at for tile in tiles for at, row in enumerate(tile.rows)
        ]
        places += [-1] * (empty * QUERY_ROWS)
        num_partitions = max(-(-len(tile.pages) // self.pages_each) for tile in tiles)
        indices = self.kv.indices
        return TileGroup(
            rows=indices([row or 0 for row in rows]).view(TILES, QUERY_ROWS),
            places=indices(places).view(TILES, QUERY_ROWS),
            pages=tuple(indices(self._pages_in(tiles, number)) for number in range(num_partitions)),
            live=indices([at for at, row in enumerate(rows) if row is not None]),
            targets=indices([row for row in rows if row is not None]),
        )

    def _pages_in(self, tiles: Sequence[Tile], partition: int) -> list[int]:
        """pages_each block ids a tile, TILES tiles; the spare block where a tile has none: its keys are not
        seen.
        """
        spare = self.kv.spare_block
        flat: list[int] = []
        for tile in tiles:
            pages = tile.pages[partition * self.pages_each : (partition + 1) * self.pages_each]
            flat += [*pages, *([spare] * (self.pages_each - len(pages)))]
        return flat + [spare] * ((TILES - len(tiles)) * self.pages_each)

    def _attend_group(self, layer: int, q: Tensor, group: TileGroup, window: int | None) -> Tensor:
        """(live rows, heads × head_dim)."""
        _, heads, dim = q.shape
        kv_heads = self.shape.num_kv_heads
        tiled = (q[group.rows.flatten()] * self.scale).view(
            TILES, QUERY_ROWS, kv_heads, heads // kv_heads, dim
        )
        rows = tiled.permute(2, 0, 1, 3, 4).reshape(kv_heads * TILES, -1, dim)
        highest, sums, outs = zip(
            *(self._partition(layer, rows, group, number, window) for number in range(len(group.pages))),
            strict=True,
        )
        merged = _merge(highest, sums, outs).view(kv_heads, TILES, QUERY_ROWS, -1, dim)
        by_row = merged.permute(1, 2, 0, 3, 4).reshape(TILES * QUERY_ROWS, heads * dim)
        return by_row[group.live].to(q.dtype)

    def _partition(
        self, layer: int, rows: Tensor, group: TileGroup, number: int, window: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Over one partition's keys: a row's highest score, the sum of exp(score - highest), and the weighted
        mean of the values. All in float32, (KV heads × TILES, rows, 1 or head_dim).
        """
        hidden = self._hidden(group, number, window)
        k, v = (
            gathered.view(rows.shape[0], self.partition, -1)
            for gathered in self.kv.gather(layer, group.pages[number])
        )
        # What an earlier owner of a page left may be NaN, and 0 × NaN is NaN.
        v.view(-1, TILES, self.partition, v.shape[-1]).masked_fill_(self._stale(group, number), 0)
        scores = torch.bmm(rows, k.transpose(1, 2)).float()
        scores.view(-1, TILES, QUERY_ROWS, rows.shape[1] // QUERY_ROWS, self.partition).masked_fill_(
            hidden, UNSEEN
        )
        weights = torch.softmax(scores, dim=-1)
        # The highest score's own weight is exp(0) / sum: from it the sum, without an exp of all scores.
        total = weights.amax(-1, keepdim=True).reciprocal()
        return scores.amax(-1, keepdim=True), total, torch.bmm(weights.to(v.dtype), v).float()

    def _hidden(self, group: TileGroup, number: int, window: int | None) -> Tensor:
        """(TILES, QUERY_ROWS, 1, partition)."""
        if (window, number) not in group.hidden:
            keys = torch.arange(self.partition, device=self.device) + number * self.partition
            places = group.places[..., None]
            hidden = keys > places
            if window is not None:
                hidden |= keys <= places - window
            group.hidden[window, number] = hidden[:, :, None, :]
        return group.hidden[window, number]

    def _stale(self, group: TileGroup, number: int) -> Tensor:
        """(TILES, partition, 1): the keys that no row of a tile sees, with or without a window, being behind
        it.
        """
        if number not in group.stale:
            keys = torch.arange(self.partition, device=self.device) + number * self.partition
            group.stale[number] = (keys > group.places.amax(1, keepdim=True))[..., None]
        return group.stale[number]


def _merge(highest: Sequence[Tensor], sums: Sequence[Tensor], outs: Sequence[Tensor]) -> Tensor:
    """The weighted mean over all partitions, added up in their order."""
    top = torch.stack(tuple(highest)).amax(0)
    total, out = torch.zeros_like(top), torch.zeros_like(outs[0])
    for high, part, mean in zip(highest, sums, outs, strict=True):
        weight = (high - top).exp_().mul_(part)
        total += weight
        out += mean * weight
    return out / total
