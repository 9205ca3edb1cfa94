"""Matrix times weight, the fastest way the device has. Owns the packed form of a weight; knows no model."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from baton_engine.layers.quantized import QuantizedWeight

_MKLDNN = cast(Any, torch.ops.mkldnn)

Weight = Tensor | QuantizedWeight


class Linear:
    """y = x @ weight.T + bias, weight of shape (out_features, in_features).

    On a CPU in bfloat16 the weight is kept only in oneDNN's blocked order: at one row this is about half the
    time of F.linear, which re-reads the plain order. `residual` is added inside the same kernel there.
    With pack=False the plain order stays, for a backend that has an order of its own.
    A quantised weight is kept as it is and turned into floats at each call: small, not fast.
    With row_tile set, every multiplication has that many rows, and x a multiple of it: see `fixed_shape.py`.
    """

    row_tile: int | None = None

    def __init__(self, weight: Weight, bias: Tensor | None = None, pack: bool = True) -> None:
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self.packed = pack and isinstance(weight, Tensor) and _can_pack(weight)
        self.weight: Weight = _MKLDNN._reorder_linear_weight(weight, None) if self.packed else weight

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self.row_tile is None or x.shape[0] == self.row_tile:
            return self._multiply(x, residual)
        parts = [None] * (x.shape[0] // self.row_tile) if residual is None else residual.split(self.row_tile)
        return torch.cat([self._multiply(*tile) for tile in zip(x.split(self.row_tile), parts, strict=True)])

    def _multiply(self, x: Tensor, residual: Tensor | None) -> Tensor:
        if not self.packed:
            weight = self.weight
            plain = weight if isinstance(weight, Tensor) else weight.floats(x.dtype)
            y = functional.linear(x, plain, self.bias)
            return y if residual is None else y.add_(residual)
        if residual is None:
            return _MKLDNN._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return _MKLDNN._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")


def embed(token_ids: Tensor, table: Weight, dtype: torch.dtype) -> Tensor:
    """The rows of `table` (vocabulary, hidden) for some ids."""
    if isinstance(table, Tensor):
        return functional.embedding(token_ids, table)
    return table.rows(token_ids).floats(dtype)


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
    )
