"""A decode step in a shape that is known beforehand: some number of requests, each with some number of pages.

On a GPU the launching of kernels costs more than a small step itself. A step whose shapes and addresses never
change can be recorded once and replayed: so its inputs lie in tensors that stay, and batches are filled up to
one of a few shapes. This module knows no GPU: it fills the inputs, and plans attention over them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from baton_engine.forward import Batch
from baton_engine.layers.attention_torch import DecodeGroup, TorchPlan
from baton_engine.layers.paged_kv import PagedKV

SHORTEST = 256  # tokens; shorter contexts take the shape for this
FIELDS = 4  # token id, position, slot, end: one number a request each


class DecodeShape(NamedTuple):
    num_requests: int
    num_pages: int


@dataclass(frozen=True)
class DecodeShapes:
    """The shapes that there are: powers of two up to the limits, and the limits themselves. most_tokens: no
    shape is for more, all requests together; None: any is.
    """

    requests: tuple[int, ...]
    pages: tuple[int, ...]
    block_size: int
    most_tokens: int | None = None

    @classmethod
    def up_to(
        cls, max_num_seqs: int, max_model_len: int, block_size: int, most_tokens: int | None = None
    ) -> DecodeShapes:
        shortest = -(-min(SHORTEST, max_model_len) // block_size)
        longest = -(-max_model_len // block_size)
        return cls(_doubling(1, max_num_seqs), _doubling(shortest, longest), block_size, most_tokens)

    def all(self) -> list[DecodeShape]:
        """Largest first: what is recorded later finds room in the memory of what was recorded before."""
        shapes = [DecodeShape(requests, pages) for requests in self.requests for pages in self.pages]
        fitting = [shape for shape in shapes if self._fits(shape)]
        return sorted(fitting, key=lambda shape: -shape.num_requests * shape.num_pages)

    def smallest_for(self, batch: Batch) -> DecodeShape | None:
        """None: not a batch of decodes alone, or one too large to be padded."""
        if any(span.length != 1 for span in batch.spans) or len(batch.spans) > self.requests[-1]:
            return None
        longest = max(-(-span.end // self.block_size) for span in batch.spans)
        if longest > self.pages[-1]:
            return None
        requests = self.requests[bisect_left(self.requests, len(batch.spans))]
        shape = DecodeShape(requests, self.pages[bisect_left(self.pages, longest)])
        return shape if self._fits(shape) else None

    def _fits(self, shape: DecodeShape) -> bool:
        tokens = shape.num_requests * shape.num_pages * self.block_size
        return self.most_tokens is None or tokens <= self.most_tokens


class DecodeInputs:
    """The tensors of one shape, on the device, and their copy on this side; all in one piece: one transfer a
    step.

    Requests that only fill up are at place 0 of the spare block, and see themselves.
    """

    def __init__(self, kv: PagedKV, shape: DecodeShape) -> None:
        self.kv = kv
        self.shape = shape
        size, pages = shape
        count = size * (FIELDS + pages)
        self._here = torch.empty(count, dtype=torch.int64, pin_memory=kv.device.type == "cuda")
        self._there = torch.empty(count, dtype=torch.int64, device=kv.device)
        self._rows = torch.arange(size, device=kv.device)
        self.token_ids, self.positions, self._slots, self._ends, self._pages = self._fields(self._there)
        spare = kv.spare_block * kv.block_size
        self._filling = torch.tensor([[0], [0], [spare], [1]]).expand(FIELDS, size)

    @property
    def sample_rows(self) -> Tensor:
        return self._rows

    def fill(self, batch: Batch) -> None:
        """Not before the step that used the last filling has ended: the transfer may still be under way."""
        size = self.shape.num_requests
        rows = len(batch.spans)
        fields, pages = self._here[: FIELDS * size].view(FIELDS, size), self._fields(self._here)[-1]
        fields.copy_(self._filling)
        fields[:, :rows] = torch.tensor(
            [
                [*batch.token_ids],
                [span.start for span in batch.spans],
                [self.kv.slot_of(span.block_ids, span.start) for span in batch.spans],
                [span.end for span in batch.spans],
            ]
        )
        pages.fill_(self.kv.spare_block)
        for row, span in enumerate(batch.spans):
            blocks = self.kv.pages_of(span)
            pages[row, : len(blocks)] = torch.tensor(blocks)
        self._there.copy_(self._here, non_blocking=True)

    def plan(self) -> TorchPlan:
        """A new one each time: what it keeps for a step, it computes from the inputs as they are then."""
        length = self.shape.num_pages * self.kv.block_size
        group = DecodeGroup(self._rows, self._pages.flatten(), self._ends, length)
        return TorchPlan(self._slots, (group,), ())

    def _fields(self, flat: Tensor) -> Sequence[Tensor]:
        size, pages = self.shape
        fields = flat[: FIELDS * size].view(FIELDS, size)
        return [*fields, flat[FIELDS * size :].view(size, pages)]


def _doubling(first: int, last: int) -> tuple[int, ...]:
    values = [first]
    while values[-1] * 2 < last:
        values.append(values[-1] * 2)
    return tuple(values) if values[-1] >= last else (*values, last)
