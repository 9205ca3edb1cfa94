"""int8 and int4 matrix products against the same arithmetic in torch, and what a row's result may depend
on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from baton_engine.layers.linear import Linear
from baton_engine.layers.quantized import BLOCK, quantize
from baton_engine.native.forward import multiply
from baton_engine.native.library import load_library
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.native_model import (
    Sequences,
    isa_parameters,
    logits,
    native_checkpoint,
    native_forward,
    torch_forward,
    usable_isas,
)
from tests.support.tiny_model import tiny_engine


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def reference(x: Tensor, linear: Linear) -> Tensor:
    """Activations to signed bytes, each block of 32 by its largest value; then the product, in float64."""
    rows, columns = x.shape
    padded = torch.nn.functional.pad(x, (0, -columns % BLOCK)).view(rows, -1, BLOCK)
    most = padded.abs().amax(-1, keepdim=True)
    codes = (padded * torch.where(most == 0, 0, 127 / most)).round()
    values = (codes.double() * (most / 127).double()).view(rows, -1)[:, :columns]
    weight = linear.weight
    assert not isinstance(weight, Tensor)
    return torch.nn.functional.linear(values, weight.floats().double(), linear.bias)


@pytest.mark.parametrize("isa", isa_parameters())
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("num_rows", "columns", "outputs"), [(1, 32, 32), (5, 70, 50), (7, 576, 96), (13, 100, 33)]
)
def test_products_are_those_of_the_reference(
    num_rows: int, columns: int, outputs: int, bits: int, isa: str
) -> None:
    linear = Linear(quantize(random(outputs, columns), bits), random(outputs, seed=2).double().float())
    x = random(num_rows, columns, seed=1) * torch.logspace(-3, 3, num_rows).unsqueeze(1)
    exact = reference(x, Linear(linear.weight, linear.bias.double() if linear.bias is not None else None))
    ours = multiply(load_library(), isa, linear, x)
    assert (ours - exact).abs().max() <= 2e-6 * exact.abs().max()
    assert ((ours - exact).abs() <= 2e-5 * exact.abs().amax(-1, keepdim=True)).all()


@pytest.mark.parametrize("isa", isa_parameters())
@pytest.mark.parametrize("bits", [8, 4])
def test_the_largest_codes_do_not_overflow(bits: int, isa: str) -> None:
    """Every weight and every activation at its largest: sums that 16 bits would cut."""
    signs = torch.tensor([1.0, -1.0]).repeat(BLOCK)
    linear = Linear(
        quantize(torch.stack([signs, -signs, torch.ones(2 * BLOCK), -torch.ones(2 * BLOCK)]), bits)
    )
    x = torch.stack([signs, torch.ones(2 * BLOCK), -torch.ones(2 * BLOCK)])
    expected = torch.tensor([[64.0, -64.0, 0, 0], [0, 0, 64.0, -64.0], [0, 0, -64.0, 64.0]])
    assert torch.allclose(multiply(load_library(), isa, linear, x), expected, atol=0.05)


@pytest.mark.parametrize("isa", isa_parameters())
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_lost_and_stays_in_its_row(bad: float, bits: int, isa: str) -> None:
    x = random(9, 96)
    x[4, 50] = bad
    linear = Linear(quantize(random(40, 96, seed=1), bits))
    out = multiply(load_library(), isa, linear, x)
    finite = out.isfinite().all(-1)
    assert finite.tolist() == [row != 4 for row in range(9)]
    assert not out[4].isfinite().any()


@pytest.mark.parametrize("isa", isa_parameters())
@pytest.mark.parametrize("bits", [8, 4])
def test_zeros_and_the_tiniest_activations_give_zeros(bits: int, isa: str) -> None:
    x = torch.stack([torch.zeros(64), torch.full((64,), 1e-38), torch.full((64,), 1e-42)])
    out = multiply(load_library(), isa, Linear(quantize(random(32, 64), bits)), x)
    assert (out.abs() < 1e-30).all()


@pytest.mark.skipif(len(usable_isas()) < 2, reason="this CPU has one instruction set only")
@pytest.mark.parametrize("bits", [8, 4])
def test_both_instruction_sets_give_the_same_bits(bits: int) -> None:
    linear, x = Linear(quantize(random(96, 200), bits)), random(17, 200, seed=1)
    first, second = (multiply(load_library(), isa, linear, x) for isa in usable_isas())
    assert torch.equal(first, second)


@pytest.mark.parametrize("isa", isa_parameters())
@pytest.mark.parametrize("bits", [8, 4])
def test_a_row_alone_and_among_others_has_the_same_bits(bits: int, isa: str) -> None:
    linear, x = Linear(quantize(random(64, 160), bits)), random(40, 160, seed=1)
    together = multiply(load_library(), isa, linear, x)
    for row in (0, 6, 23, 39):
        assert torch.equal(multiply(load_library(), isa, linear, x[row : row + 1]), together[row : row + 1])
    assert torch.equal(multiply(load_library(), isa, linear, x[3:20]), together[3:20])


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("tied", [False, True])
def test_without_kernels_torch_computes_with_the_same_weights(quantization: str, tied: bool) -> None:
    """This model's random weights make every error large; the kernels' own, which quantise activations too,
    is much under that of int4 weights."""
    checkpoint, sequences = native_checkpoint(tie_word_embeddings=tied), Sequences([60])
    batch = sequences.whole()
    exact = logits(torch_forward(checkpoint, torch.float32), batch)
    bits = 8 if quantization == "int8" else 4
    plain = logits(torch_forward(checkpoint, torch.float32, bits), batch)
    off = 1 - torch.nn.functional.cosine_similarity(plain, exact)
    assert 1e-7 < off.mean() < (1e-3 if bits == 8 else 0.1)
    for isa in usable_isas():
        ours = logits(native_forward(checkpoint, isa, quantization=quantization), batch)
        assert torch.nn.functional.cosine_similarity(ours, plain).mean() > 0.9985


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_an_engine_answers_the_same_alone_and_beside_others(backend: str) -> None:
    if backend == "native" and not usable_isas():
        pytest.skip("no compiler or no AVX2 here")
    dtype = "bfloat16" if backend == "native" else "float32"
    prompts = [[(7 * one + 3 * at) % 250 for at in range(20 + 9 * one)] for one in range(4)]

    def answers(**changes: int) -> list[list[int]]:
        engine = tiny_engine(
            native_checkpoint(), dtype=dtype, backend=backend, quantization="int4", **changes
        )
        for one, prompt in enumerate(prompts):
            add(engine, ask(f"r{one}", prompt, GREEDY))
        deltas = drain(engine)
        return [token_ids(deltas[f"r{one}"]) for one in range(len(prompts))]

    alone = answers(max_num_seqs=1)
    assert all(len(answer) == 24 for answer in alone)
    assert answers() == alone
