"""RMSNorm (Zhang and Sennrich, 2019), computed in float32 whatever the activations are."""

from __future__ import annotations

import torch
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


class HeadNorm:
    """RMSNorm of each head by itself, q's heads with one weight and k's with another, in one call.

    q_weight and k_weight (head_dim,); x (tokens, q heads + k heads, head_dim).
    """

    def __init__(self, q_weight: Tensor, k_weight: Tensor, num_q: int, num_k: int, eps: float) -> None:
        self.q_weight, self.k_weight = q_weight, k_weight
        self.weight = torch.cat((q_weight.expand(num_q, -1), k_weight.expand(num_k, -1)))
        self.eps = eps
        self.shape = tuple(q_weight.shape)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.shape, None, self.eps) * self.weight
