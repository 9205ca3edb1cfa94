"""The same bits for a row whatever is computed beside it, in torch operators: what that takes besides
attention.

A library picks its kernel, and with it the order of sums, by the shape of a matrix product. So every product
here has ROW_TILE rows: a larger batch is cut, a smaller one padded. Sums along a row (norms, softmax) are
done row by row at any number of rows. And of the functions that are applied number by number one needs care:
on a CPU torch's silu is another approximation in its vectors than in the numbers that are left over.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

ROW_TILE = 32
SERIAL_BELOW = 32_768  # torch gives a number-by-number operation of this size or more to several threads


def padded_rows(num_rows: int) -> int:
    """The next multiple of ROW_TILE."""
    return -(-num_rows // ROW_TILE) * ROW_TILE


def padded(values: Sequence[int]) -> list[int]:
    """`values` and zeros, up to the next multiple of ROW_TILE."""
    return [*values, *([0] * (padded_rows(len(values)) - len(values)))]


def silu_by_rows(x: Tensor) -> Tensor:
    """silu of x (rows, width), cut so that no thread's share ends inside a row: what is left over then are
    the same places of every row. x must not be contiguous (half of a wider matrix), else torch joins its
    rows.
    """
    if x.device.type != "cpu":
        return functional.silu(x)
    assert x.stride(0) != x.shape[1] or x.shape[0] == 1
    rows = max(1, (SERIAL_BELOW - 1) // x.shape[1])
    return torch.cat([functional.silu(part) for part in x.split(rows)])
