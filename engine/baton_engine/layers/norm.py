"""RMSNorm (Zhang and Sennrich, 2019), computed in float32 whatever the activations are."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


class RMSNorm:
    """x / sqrt(mean(x²) + eps) * weight over the last dimension; F.rms_norm keeps its sums in float32."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight = weight
        self.eps = eps
        self.shape = tuple(weight.shape)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.shape, self.weight, self.eps)
