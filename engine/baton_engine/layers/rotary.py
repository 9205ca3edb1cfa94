"""Rotary position embedding (Su et al., 2021; the half-split form of Llama) and its scalings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from baton_engine.errors import ModelLoadError


@dataclass(frozen=True)
class RopeSpec:
    """scaling is the rope_scaling mapping of config.json, or None; kinds: linear, llama3, default."""

    head_dim: int
    theta: float
    max_positions: int
    scaling: dict[str, Any] | None = None


def inverse_frequencies(spec: RopeSpec) -> Tensor:
    """float32 of shape (head_dim / 2,). Raises ModelLoadError for a scaling we don't have."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    frequencies = 1.0 / (spec.theta**exponents)
    scaling = spec.scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / float(scaling["factor"])
    if kind == "llama3":
        return _llama3(frequencies, scaling)
    raise ModelLoadError(
        f"config.json asks for RoPE scaling {kind!r}; this engine has default, linear and llama3."
    )


def _llama3(frequencies: Tensor, scaling: dict[str, Any]) -> Tensor:
    """Llama 3.1's rule: long wavelengths divided by factor, short ones kept, a linear blend between."""
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    old_context = float(scaling["original_max_position_embeddings"])
    wavelengths = 2 * math.pi / frequencies
    blend = ((old_context / wavelengths - low) / (high - low)).clamp(0, 1)
    blended = (1 - blend) * frequencies / factor + blend * frequencies
    scaled = torch.where(wavelengths > old_context / low, frequencies / factor, blended)
    return torch.where(wavelengths < old_context / high, frequencies, scaled)


class RotaryTable:
    """cos and sin for every position, made once in float32 and kept in the model's dtype.

    `at` gives the rows for one step; `rotate` then costs a roll and two multiplications for q and k together.
    """

    def __init__(self, spec: RopeSpec, dtype: torch.dtype, device: torch.device) -> None:
        positions = torch.arange(spec.max_positions, dtype=torch.float32)
        angles = torch.outer(positions, inverse_frequencies(spec))
        cos, sin = angles.cos(), angles.sin()
        # roll by half a head turns (a, b) into (b, a): the minus of rotate-half goes into the table.
        self._cos = torch.cat((cos, cos), dim=-1).to(device=device, dtype=dtype)
        self._sin = torch.cat((-sin, sin), dim=-1).to(device=device, dtype=dtype)
        self._half = spec.head_dim // 2

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(num_tokens,) → two of (num_tokens, 1, head_dim)."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)

    def rotate(self, heads: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
        """heads: (num_tokens, any number of heads, head_dim)."""
        cos, sin = cos_sin
        return (heads * cos).addcmul_(heads.roll(self._half, dims=-1), sin)
