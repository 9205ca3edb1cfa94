"""K and V as they are kept: the codes of int8 by hand, and what torch's attentions make of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.attention_fixed import FixedShapeAttention
from baton_engine.layers.attention_gpu import GPUAttention
from baton_engine.layers.attention_torch import TorchAttention
from baton_engine.layers.kept_values import KeptValues, to_int8

CPU = torch.device("cpu")
INT8 = KVShape(1, 2, 32, 16, torch.float32, torch.int8)
KINDS = [TorchAttention, FixedShapeAttention]


def random(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def test_codes_by_hand() -> None:
    codes, scales = to_int8(torch.tensor([[254.0, -127.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0]]))
    assert codes.tolist() == [[127, -64, 2, 0], [0, 0, 0, 0]]  # halves go to the even neighbour
    assert scales.tolist() == [2.0, 0.0]


def test_what_is_not_a_number_becomes_its_rows_scale() -> None:
    codes, scales = to_int8(torch.tensor([[1.0, torch.nan], [1.0, -torch.inf], [1.0, 2.0], [1e-36, 0.0]]))
    assert codes[3].tolist() == [0, 0]
    assert scales[0].isnan()
    assert scales[1].isinf()
    assert scales[2:].isfinite().all()


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "most_off"),
    [
        (torch.float32, torch.float32, 0.0),
        (torch.float32, torch.bfloat16, 2**-8),
        (torch.bfloat16, torch.float32, 2**-8),
        (torch.float32, torch.int8, 1 / 253),
        (torch.bfloat16, torch.int8, 1 / 100),
    ],
)
def test_what_is_stored_comes_back(dtype: torch.dtype, kv_dtype: torch.dtype, most_off: float) -> None:
    """most_off: of a row's largest value."""
    kept = KeptValues(KVShape(2, 3, 32, 4, dtype, kv_dtype), 40, CPU)
    rows = random(6, 3, 32)
    kept.store(1, torch.tensor([8, 9, 10, 11, 36, 37]), rows.to(dtype))
    found = kept.gather(1, torch.tensor([9, 2]))
    assert found.dtype is dtype
    assert found.shape == (3, 8, 32)
    back = torch.cat([found[:, 4:], found[:, :2]], dim=1).transpose(0, 1).float()
    assert ((back - rows).abs() <= most_off * rows.abs().amax(-1, keepdim=True)).all()
    assert not kept.gather(0, torch.tensor([9, 2])).any()


@pytest.mark.parametrize("kind", [*KINDS, GPUAttention])
def test_attention_is_that_over_the_rounded_keys_and_values(kind: Any) -> None:
    q, k, v = random(40, 6, 32), random(40, 2, 32, seed=1), random(40, 2, 32, seed=2)
    spans = [Span(0, 40, [3, 1, 0])]
    ours = kind(INT8, 4, CPU)
    rounded = [codes * scales.unsqueeze(-1) for codes, scales in (to_int8(k), to_int8(v))]
    plain = TorchAttention(KVShape(1, 2, 32, 16, torch.float32), 4, CPU)
    expected = plain.attend(0, q, *rounded, plain.plan(spans))
    result = ours.attend(0, q, k, v, ours.plan(spans))
    assert torch.allclose(result, expected, atol=1e-5)
    exact = plain.attend(0, q, k, v, plain.plan(spans))
    assert (result - exact).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_failed_request_left_in_a_block_is_not_seen(kind: Any) -> None:
    results: list[Tensor] = []
    for left in (0.0, torch.nan):
        attention = kind(INT8, 4, CPU)
        for side in (attention.kv.keys, attention.kv.values):
            assert side.scales is not None
            side.scales[:, :, : 4 * 16] = left
            side.values[:, :, : 4 * 16] = 77
        rows: list[Tensor] = []
        for spans in ([Span(0, 20, [3, 1])], [Span(20, 1, [3, 1]), Span(0, 1, [0])]):
            count = sum(span.length for span in spans)
            q, k, v = (random(count, heads, 32, seed=heads) for heads in (6, 2, 2))
            rows.append(attention.attend(0, q, k, v, attention.plan(spans)))
        results.append(torch.cat(rows))
    assert results[1].isfinite().all()
    assert torch.equal(results[0], results[1])


def test_the_paged_gpu_kernel_is_not_tried() -> None:
    attention = GPUAttention(INT8, 4, CPU)
    assert any("in the model's dtype only" in reason for reason in attention.use_what_works(6))
    assert attention.paged is None


def test_bytes_of_llama_3_8b_by_hand() -> None:
    sizes = (32, 8, 128, 16, torch.bfloat16)
    assert KVShape(*sizes).bytes_per_token == 128 * 1024
    assert KVShape(*sizes, torch.int8).bytes_per_token == 2 * 32 * 8 * (128 + 4)
    assert KVShape(*sizes, torch.float32).bytes_per_block == 16 * 256 * 1024
