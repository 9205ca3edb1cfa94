"""The gated feed-forward block: down(silu(gate(x)) * up(x)), gate and up in one multiplication (SwiGLU)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from baton_engine.layers.linear import Linear


class GatedMLP:
    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self.gate_up = gate_up
        self.down = down
        self.silu: Callable[[Tensor], Tensor] = functional.silu

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.silu(gate).mul_(up), residual)
