"""A weight in 8 or 4 bits: its form, and the making of it from floats. Knows no file format and no kernel.

Each row is cut into blocks of 32 neighbours. A block of int8 has a scale: weight = scale x (code - 128). A
block of int4 has a scale and a minimum: weight = scale x code + minimum. Scales and minima are float16. These
are the forms of GGUF's Q8_0 and Q4_1 (and Q4_0, Q5_0 fit in them exactly), so such tensors are taken as they
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 32
INT8_ZERO = 128
INT4_MOST = 15
STRETCHES = (0.0, -1.0, -0.5, 0.5)
"""How many steps more or fewer than 15 the range of a block may be cut into, to see which fits its weights
best."""

EXACT = 2.0**-10
"""An int4 block whose error is under this share of its range was on such a grid before, but for bfloat16's
rounding: nothing is left to search for."""

CHUNK_ELEMENTS = 1 << 15
"""Of a weight at a time. Its copies stay in a core's cache; and torch gives no more than this to one thread,
so that a busy neighbour does not make every small operation wait for two."""


@dataclass(frozen=True)
class QuantizedWeight:
    """codes uint8: (rows, blocks x 32) for int8; (rows, blocks x 16) for int4, whose byte j of a block holds
    k = j in its low and k = j + 16 in its high half. scales, minima float16 (rows, blocks); minima of int4
    only. num_columns: the real ones; those that fill up the last block are multiplied by zeros.
    """

    codes: Tensor
    scales: Tensor
    minima: Tensor | None
    num_columns: int

    @property
    def bits(self) -> int:
        return 8 if self.minima is None else 4

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.num_columns

    @property
    def num_bytes(self) -> int:
        parts = (self.codes, self.scales, self.minima)
        return sum(part.numel() * part.element_size() for part in parts if part is not None)

    def floats(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """(rows, num_columns), computed in float32."""
        rows, blocks = self.scales.shape
        scales = self.scales.float().unsqueeze(-1)
        if self.minima is None:
            values = scales * (self.codes.view(rows, blocks, BLOCK).float() - INT8_ZERO)
        else:
            halves = self.codes.view(rows, blocks, BLOCK // 2)
            codes = torch.cat([halves & 15, halves >> 4], dim=-1)
            values = scales * codes.float() + self.minima.float().unsqueeze(-1)
        return values.view(rows, -1)[:, : self.num_columns].to(dtype)

    def rows(self, indices: Tensor) -> QuantizedWeight:
        minima = None if self.minima is None else self.minima[indices]
        return replace(self, codes=self.codes[indices], scales=self.scales[indices], minima=minima)

    def to(self, device: torch.device) -> QuantizedWeight:
        minima = None if self.minima is None else self.minima.to(device)
        return replace(self, codes=self.codes.to(device), scales=self.scales.to(device), minima=minima)


def quantize(weight: Tensor, bits: int) -> QuantizedWeight:
    """weight (rows, columns), of any float dtype, to the nearest of 8 or 4 bits."""
    to_bits = _to_int8 if bits == 8 else _to_int4
    return join([to_bits(rows) for rows in _chunks(weight)])


def join(weights: Sequence[QuantizedWeight]) -> QuantizedWeight:
    """The rows of several weights behind one another. Of mixed widths, the narrow ones are widened to
    int8."""
    if len({weight.bits for weight in weights}) > 1:
        weights = [weight if weight.bits == 8 else quantize(weight.floats(), 8) for weight in weights]
    if len(weights) == 1:
        return weights[0]
    minima = [weight.minima for weight in weights if weight.minima is not None]
    return QuantizedWeight(
        torch.cat([weight.codes for weight in weights]),
        torch.cat([weight.scales for weight in weights]),
        torch.cat(minima) if minima else None,
        weights[0].num_columns,
    )


def quantized_bytes(rows: int, columns: int, bits: int) -> int:
    """What a weight of this shape takes: known without having it."""
    blocks = -(-columns // BLOCK)
    return rows * blocks * (BLOCK + 2 if bits == 8 else BLOCK // 2 + 4)


def pack_nibbles(codes: Tensor) -> Tensor:
    """uint8 codes (..., 32) under 16 → (..., 16)."""
    return codes[..., : BLOCK // 2] | (codes[..., BLOCK // 2 :] << 4)


def _chunks(weight: Tensor) -> Iterator[Tensor]:
    """Some rows at a time: float32 copies of a whole matrix would take a multiple of its memory."""
    at_once = max(1, CHUNK_ELEMENTS // weight.shape[1])
    yield from weight.split(at_once)


def _in_blocks(rows: Tensor) -> Tensor:
    """(rows, blocks, 32) in float32; the last block is filled up with its row's last value, which leaves its
    range alone."""
    rows = rows.float()
    missing = -rows.shape[1] % BLOCK
    if missing:
        rows = functional.pad(rows.unsqueeze(0), (0, missing), mode="replicate").squeeze(0)
    return rows.view(rows.shape[0], -1, BLOCK)


def _to_int8(rows: Tensor) -> QuantizedWeight:
    blocks = _in_blocks(rows)
    scales = (blocks.abs().amax(-1) / 127).half()
    codes = (blocks * _reciprocal(scales)).round_().clamp_(-127, 127).add_(INT8_ZERO).to(torch.uint8)
    return QuantizedWeight(codes.flatten(1), scales, None, rows.shape[1])


def _to_int4(rows: Tensor) -> QuantizedWeight:
    """Of some ways to cut the block's range, the one with the least square error."""
    blocks = _in_blocks(rows)
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    best = _cut(blocks, low, (high - low) / INT4_MOST)
    if bool((best[0] > (EXACT * (high - low).squeeze(-1)).square() * BLOCK).any()):
        for stretch in STRETCHES[1:]:
            other = _cut(blocks, low, (high - low) / (INT4_MOST + stretch))
            better = other[0] < best[0]
            best = tuple(
                torch.where(better if old.ndim == 2 else better.unsqueeze(-1), new, old)
                for new, old in zip(other, best, strict=True)
            )
    _, scales, minima, codes = best
    return QuantizedWeight(pack_nibbles(codes).flatten(1), scales, minima, rows.shape[1])


def _cut(blocks: Tensor, low: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes at this step from `low` up; then the scale and the minimum that fit these codes best, in float16,
    and the codes that are nearest with those. Returns (square error, scales, minima, codes) of each block."""
    codes = ((blocks - low) * _reciprocal(step)).round_().clamp_(0, INT4_MOST)
    mean_code, mean = codes.mean(-1, keepdim=True), blocks.mean(-1, keepdim=True)
    centred = codes - mean_code
    spread = centred.square().sum(-1, keepdim=True)
    slope = (centred * blocks).sum(-1, keepdim=True) / spread.clamp_min(1)
    scales = slope.half()
    minima = (mean - scales.float() * mean_code).half()
    wide_scales, wide_minima = scales.float(), minima.float()
    codes = ((blocks - wide_minima) * _reciprocal(wide_scales)).round_().clamp_(0, INT4_MOST)
    error = (wide_scales * codes + wide_minima - blocks).square().sum(-1)
    return error, scales.squeeze(-1), minima.squeeze(-1), codes.to(torch.uint8)


def _reciprocal(scales: Tensor) -> Tensor:
    """0 for 0: a block of equal weights has codes of zero. Shaped to multiply blocks."""
    wide = scales.float()
    inverse = torch.where(wide == 0, 0, 1 / wide)
    return inverse if inverse.ndim == 3 else inverse.unsqueeze(-1)
