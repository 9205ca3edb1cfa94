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
    """scaling is config.json's rope_scaling mapping, or None; kinds: default, linear, llama3, yarn, dynamic.

    max_positions is how many positions there are: what config.json says, or more where yarn stretches it.
    """

    head_dim: int
    theta: float
    max_positions: int
    scaling: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        scaling = self.scaling or {}
        return str(scaling.get("rope_type", scaling.get("type", "default")))


def inverse_frequencies(spec: RopeSpec) -> Tensor:
    """float32 of shape (head_dim / 2,). Raises ModelLoadError for a scaling we don't have.

    dynamic (NTK) changes the frequencies only beyond max_position_embeddings, and then with every token: keys
    in the cache would be wrong for longer sequences. Contexts end there; up to there it is the default.
    """
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    frequencies = 1.0 / (spec.theta**exponents)
    scaling = spec.scaling or {}
    match spec.kind:
        case "default" | "dynamic":
            return frequencies
        case "linear":
            return frequencies / _number(scaling, "factor")
        case "llama3":
            return _llama3(frequencies, scaling)
        case "yarn":
            return _yarn(frequencies, spec.theta, scaling)
        case kind:
            raise ModelLoadError(
                f"config.json asks for RoPE scaling {kind!r}; this engine has default, linear, dynamic, yarn "
                "and llama3."
            )


def attention_factor(spec: RopeSpec) -> float:
    """What cos and sin are multiplied by: yarn's correction of the attention's temperature, 1 elsewhere."""
    scaling = spec.scaling or {}
    if spec.kind != "yarn":
        return 1.0
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    factor = _number(scaling, "factor")
    scale, scale_all = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if scale and scale_all:
        return _temperature(factor, scale) / _temperature(factor, scale_all)
    return _temperature(factor, 1.0)


def _temperature(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _yarn(frequencies: Tensor, theta: float, scaling: dict[str, Any]) -> Tensor:
    """YaRN (Peng et al., 2023, section 3.2): a frequency that turns more than beta_fast times within the old
    context is kept, one that turns less than beta_slow times is divided by factor, a linear ramp over the
    dimensions between.
    """
    factor = _number(scaling, "factor")
    old_context = _number(scaling, "original_max_position_embeddings")
    num_frequencies = frequencies.shape[0]

    def dimension_turning(times: float) -> float:
        return num_frequencies * math.log(old_context / (times * 2 * math.pi)) / math.log(theta)

    first = dimension_turning(float(scaling.get("beta_fast") or 32))
    last = dimension_turning(float(scaling.get("beta_slow") or 1))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * num_frequencies - 1)
    width = max(last - first, 1e-3)  # at equal bounds the ramp is a step
    ramp = ((torch.arange(num_frequencies, dtype=torch.float32) - first) / width).clamp(0, 1)
    return frequencies / factor * ramp + frequencies * (1 - ramp)


def _llama3(frequencies: Tensor, scaling: dict[str, Any]) -> Tensor:
    """Llama 3.1's rule: long wavelengths divided by factor, short ones kept, a linear blend between."""
    factor = _number(scaling, "factor")
    low, high = _number(scaling, "low_freq_factor"), _number(scaling, "high_freq_factor")
    old_context = _number(scaling, "original_max_position_embeddings")
    wavelengths = 2 * math.pi / frequencies
    blend = ((old_context / wavelengths - low) / (high - low)).clamp(0, 1)
    blended = (1 - blend) * frequencies / factor + blend * frequencies
    scaled = torch.where(wavelengths > old_context / low, frequencies / factor, blended)
    return torch.where(wavelengths < old_context / high, frequencies, scaled)


def _number(scaling: dict[str, Any], key: str) -> float:
    value = scaling.get(key)
    if not isinstance(value, (int, float)) or value <= 0:
        raise ModelLoadError(
            f"config.json has {key} = {value!r} in its RoPE scaling; a number over 0 is needed."
        )
    return float(value)


class RotaryTable:
    """cos and sin for every position, made once in float32 and kept in the model's dtype.

    `at` gives the rows for one step; `rotate` then costs a roll and two multiplications for q and k together.
    """

    def __init__(self, spec: RopeSpec, dtype: torch.dtype, device: torch.device) -> None:
        positions = torch.arange(spec.max_positions, dtype=torch.float32)
        angles = torch.outer(positions, inverse_frequencies(spec))
        scale = attention_factor(spec)
        cos, sin = angles.cos() * scale, angles.sin() * scale
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
