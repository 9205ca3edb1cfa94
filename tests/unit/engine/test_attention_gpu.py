"""A GPU's attention beside the reference, on the CPU; what is tried at the start is used only if it is right.

The paged kernel needs Triton, which torch's builds for CPUs lack. Where it is installed, its interpreter runs
the kernel here; on a GPU it is compiled.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from baton_engine.layers import attention_gpu
from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.attention_gpu import GPUAttention, load_paged_decode, paged_trial, why_not
from baton_engine.layers.attention_torch import TorchAttention

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # has to be there before anything imports Triton

FLOAT32 = KVShape(num_layers=1, num_kv_heads=2, head_dim=32, block_size=16, dtype=torch.float32)
BFLOAT16 = KVShape(num_layers=2, num_kv_heads=2, head_dim=32, block_size=16, dtype=torch.bfloat16)


@pytest.mark.parametrize("window", [None, 9])
def test_fused_prompts_give_what_the_reference_gives(window: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    fused, plain = (
        GPUAttention(FLOAT32, 20, torch.device("cpu")),
        TorchAttention(FLOAT32, 20, torch.device("cpu")),
    )
    fused.fused = True
    for start, end in ((0, 70), (70, 71), (71, 300)):
        spans = [Span(start, end - start, range(20))]
        q, k, v = (torch.randn(end - start, heads, 32, generator=generator) for heads in (6, 2, 2))
        ours = fused.attend(0, q, k, v, fused.plan(spans), window)
        assert torch.allclose(ours, plain.attend(0, q, k, v, plain.plan(spans), window), atol=1e-5)


def no_triton() -> None:
    raise ImportError("No module named 'triton'")


def test_what_passes_its_trial_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gpu, "load_paged_decode", no_triton)
    attention = GPUAttention(BFLOAT16, 4, DEVICE)
    reasons = attention.use_what_works(6)
    assert attention.fused
    assert attention.paged is None
    assert reasons == ["decodes gather their pages, without the paged kernel: No module named 'triton'."]
    reasons = GPUAttention(FLOAT32, 4, DEVICE).use_what_works(6)
    assert reasons[1].endswith("they are not for float32.")


def missing(*_: object, **__: object) -> Tensor:
    raise RuntimeError("No available kernel.")


def aligned_otherwise(q: Tensor, k: Tensor, v: Tensor, **_: object) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [(missing, "RuntimeError: No available kernel."), (aligned_otherwise, "cosines to the reference")],
)
def test_fused_kernels_that_fail_or_err_are_not_used(
    kernel: Callable[..., Tensor], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_gpu, "load_paged_decode", no_triton)
    monkeypatch.setattr(attention_gpu, "scaled_dot_product_attention", kernel)
    attention = GPUAttention(BFLOAT16, 4, DEVICE)
    assert reason in attention.use_what_works(6)[1]
    assert not attention.fused


def stand_in(
    q: Tensor, k: Tensor, v: Tensor, pages: Tensor, ends: Tensor, block_size: int, window: int | None
) -> Tensor:
    """What the paged kernel is to compute, request by request."""
    rows: list[Tensor] = []
    for row, (table, end) in enumerate(zip(pages.tolist(), ends.tolist(), strict=True)):
        slots = [table[at // block_size] * block_size + at % block_size for at in range(end)][
            -(window or end) :
        ]
        keys, values = (
            one[:, slots].repeat_interleave(q.shape[1] // k.shape[0], 0).float() for one in (k, v)
        )
        weights = torch.softmax(torch.einsum("hd,hsd->hs", q[row].float(), keys), -1)
        rows.append(torch.einsum("hs,hsd->hd", weights, values).flatten())
    return torch.stack(rows).to(q.dtype)


def test_a_paged_kernel_is_used_if_it_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gpu, "load_paged_decode", lambda: stand_in)
    attention = GPUAttention(FLOAT32, 4, DEVICE)
    attention.use_what_works(6)
    assert attention.paged is stand_in
    long_and_short = [Span(999, 1, range(63)), Span(2, 1, range(1))]
    assert len(attention.plan(long_and_short).decodes) == 1  # nothing to pad
    wrong = [lambda *args: stand_in(*args) * -1, lambda *args: stand_in(*args) * torch.nan, missing]
    for kernel in wrong:
        monkeypatch.setattr(attention_gpu, "load_paged_decode", lambda kernel=kernel: kernel)
        assert "without the paged kernel" in attention.use_what_works(6)[0]
        assert attention.paged is None


@pytest.mark.skipif(
    not HAS_TRITON or (DEVICE.type == "cpu" and not INTERPRETED),
    reason="needs Triton, which comes with torch's builds for CUDA, and a GPU or TRITON_INTERPRET=1",
)
@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "block_size"), [(6, 2, 64, 16), (4, 4, 40, 16), (7, 1, 32, 5)]
)
def test_the_paged_kernel(heads: int, kv_heads: int, dim: int, block_size: int, window: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    k, v = (torch.randn(kv_heads, 100 * block_size, dim, generator=generator).to(DEVICE) for _ in range(2))
    ends = torch.tensor([1, 17, 200, 333]).to(DEVICE)
    pages = torch.randint(0, 100, (4, -(-333 // block_size)), generator=generator).to(DEVICE)
    q = torch.randn(4, heads, dim, generator=generator).to(DEVICE) / dim**0.5
    ours = load_paged_decode()(q, k, v, pages, ends, block_size, window)
    assert torch.allclose(ours, stand_in(q, k, v, pages, ends, block_size, window), atol=1e-5)
    shape = KVShape(1, kv_heads, dim, block_size, torch.float32)
    assert why_not(paged_trial(shape, heads, DEVICE, load_paged_decode())) is None
