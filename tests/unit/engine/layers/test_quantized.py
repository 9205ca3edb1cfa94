"""Weights in 8 and 4 bits: known values, bounds of the error, and what must come through exactly."""

from __future__ import annotations

import pytest
import torch

from baton_engine.layers.linear import Linear, embed
from baton_engine.layers.quantized import BLOCK, QuantizedWeight, join, quantize, quantized_bytes


def random_weight(rows: int = 24, columns: int = 96, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.05


def in_blocks(weight: torch.Tensor) -> torch.Tensor:
    return weight.view(weight.shape[0], -1, BLOCK)


def test_int8_by_hand() -> None:
    """Largest 254 → scale 2: 254, -254, 3 and 5 are 127, -127, 1.5 and 2.5, which round to even."""
    row = torch.zeros(1, BLOCK)
    row[0, :4] = torch.tensor([254.0, -254.0, 3.0, 5.0])
    weight = quantize(row, 8)
    assert weight.scales.tolist() == [[2.0]]
    assert weight.codes[0, :5].tolist() == [255, 1, 130, 130, 128]
    assert weight.floats()[0, :5].tolist() == [254.0, -254.0, 4.0, 4.0, 0.0]


def test_int4_by_hand() -> None:
    """-1 to 14 in steps of one: scale 1, minimum -1, each value its own code."""
    row = torch.arange(BLOCK).remainder(16).float().sub(1).view(1, BLOCK)
    weight = quantize(row, 4)
    assert weight.minima is not None
    assert (weight.scales.item(), weight.minima.item()) == (1.0, -1.0)
    assert weight.codes.tolist() == [[code | code << 4 for code in range(16)]]
    assert torch.equal(weight.floats(), row)


@pytest.mark.parametrize(("bits", "steps"), [(8, 254), (4, 15)])
def test_no_weight_is_off_by_more_than_half_a_step_of_its_block(bits: int, steps: int) -> None:
    weight = random_weight()
    error = in_blocks((quantize(weight, bits).floats() - weight).abs())
    blocks = in_blocks(weight)
    reach = 2 * blocks.abs().amax(-1) if bits == 8 else blocks.amax(-1) - blocks.amin(-1)
    allowed = 0.502 if bits == 8 else 1.0  # int4 gives up a little at the ends for less error in all
    assert bool((error.amax(-1) <= allowed * reach / steps).all())


def test_the_search_for_an_int4_grid_gains_over_minimum_and_maximum() -> None:
    weight = random_weight(rows=200)
    blocks = in_blocks(weight)
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    step = (high - low) / 15
    plain = (((blocks - low) / step).round() * step + low).view_as(weight)
    ours, theirs = (
        (rough - weight).square().mean().item() for rough in (quantize(weight, 4).floats(), plain)
    )
    assert ours < 0.93 * theirs


def test_what_was_quantised_before_is_found_again() -> None:
    """bfloat16 of 4-bit weights, as a converted GGUF file has them: off by bfloat16's rounding only."""
    once = quantize(random_weight(), 4).floats()
    again = quantize(once.bfloat16(), 4).floats()
    assert (again - once).abs().max() <= once.abs().max() * 2**-8


@pytest.mark.parametrize("bits", [8, 4])
def test_blocks_of_one_value_and_of_zeros_come_through(bits: int) -> None:
    weight = torch.stack([torch.zeros(BLOCK), torch.full((BLOCK,), 0.25), torch.full((BLOCK,), -0.25)])
    assert quantize(weight, bits).floats().sub(weight).abs().max() < 0.0005


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("columns", [1, 31, 33, 70])
def test_a_last_block_that_is_not_full(columns: int, bits: int) -> None:
    weight = random_weight(columns=columns)
    quantized = quantize(weight, bits)
    assert quantized.shape == (24, columns)
    assert quantized.num_bytes == quantized_bytes(24, columns, bits)
    assert quantized.floats().shape == weight.shape
    assert (quantized.floats() - weight).abs().max() <= weight.abs().max() / (120 if bits == 8 else 7)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_nan_stays_in_its_block(bits: int) -> None:
    weight = random_weight()
    weight[3, 40] = torch.nan
    values = quantize(weight, bits).floats()
    assert values[3, 32:64].isnan().all()
    assert values.isnan().sum() == BLOCK


def test_weights_of_one_width_join_as_they_are_and_mixed_ones_as_int8() -> None:
    first, second = (quantize(random_weight(seed=seed), 4) for seed in (1, 2))
    both = join([first, second])
    assert both.bits == 4
    assert torch.equal(both.floats(), torch.cat([first.floats(), second.floats()]))
    mixed = join([first, quantize(random_weight(seed=2), 8)])
    assert mixed.bits == 8
    assert mixed.shape == (48, 96)
    assert (mixed.floats()[:24] - first.floats()).abs().max() <= first.floats().abs().max() / 250


def test_linear_and_embedding_compute_with_what_the_codes_say() -> None:
    weight = quantize(random_weight(), 4)
    x = torch.randn(3, 96, generator=torch.Generator().manual_seed(5))
    bias = torch.arange(24.0)
    assert torch.equal(Linear(weight, bias)(x), torch.nn.functional.linear(x, weight.floats(), bias))
    ids = torch.tensor([7, 0, 7])
    assert torch.equal(embed(ids, weight, torch.float32), weight.floats()[ids])
    assert embed(ids, weight, torch.bfloat16).dtype == torch.bfloat16


def test_bytes_are_those_of_the_parts() -> None:
    """A block of 32: int8 32 + 2 bytes, int4 16 + 4."""
    assert [quantize(random_weight(), bits).num_bytes for bits in (8, 4)] == [24 * 3 * 34, 24 * 3 * 20]
    assert isinstance(quantize(random_weight(), 8), QuantizedWeight)
