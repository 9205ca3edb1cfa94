"""How the torch attentions group decodes, and the fused kernels' trial; what they compute is in other tests
too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from baton_engine.layers import attention_torch
from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.attention_fixed import FixedShapeAttention
from baton_engine.layers.attention_torch import TorchAttention

CPU = torch.device("cpu")
SHAPE = KVShape(num_layers=1, num_kv_heads=2, head_dim=32, block_size=16, dtype=torch.float32)


def decode(end: int) -> Span:
    return Span(end - 1, 1, range(-(-end // 16)))


def rows_of_groups(*ends: int) -> list[list[int]]:
    plan = TorchAttention(SHAPE, 64, CPU).plan([decode(end) for end in ends])
    return [group.rows.tolist() for group in plan.decodes]


def test_decodes_of_like_lengths_go_together() -> None:
    assert rows_of_groups(5, 300, 17) == [[0, 1, 2]]  # short ones anyway
    assert rows_of_groups(100, 900, 500, 499, 1_000, 3) == [[1, 2, 4], [0, 3, 5]]
    assert rows_of_groups(600, 1_000, 90, 40) == [[0, 1], [2, 3]]


def test_a_group_gathers_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_torch, "MOST_GATHERED", 1_000)
    assert rows_of_groups(300, 310, 320, 330) == [[1, 2, 3], [0]]
    assert rows_of_groups(1_024) == [[0]]


@pytest.mark.parametrize("window", [None, 50])
def test_groups_do_not_change_what_is_computed(window: int | None) -> None:
    ends = [600, 3, 1_000, 40, 900]
    generator = torch.Generator().manual_seed(1)
    blocks = torch.randperm(200, generator=generator).tolist()
    attention = TorchAttention(SHAPE, 200, CPU)
    spans: list[Span] = []
    for end in ends:
        own = [blocks.pop() for _ in range(-(-end // 16))]
        spans.append(Span(end - 1, 1, own))
        k, v, q = (torch.randn(end - 1, heads, 32, generator=generator) for heads in (2, 2, 6))
        if end > 1:
            attention.attend(0, q, k, v, attention.plan([Span(0, end - 1, own)]))
    q, k, v = (torch.randn(len(ends), heads, 32, generator=generator) for heads in (6, 2, 2))
    together = attention.plan(spans)
    assert len(together.decodes) == 2
    result = attention.attend(0, q, k, v, together, window)
    for row, span in enumerate(spans):
        one = slice(row, row + 1)
        alone = attention.attend(0, q[one], k[one], v[one], attention.plan([span]), window)
        assert torch.allclose(result[one], alone, atol=1e-6)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", [TorchAttention, FixedShapeAttention])
def test_what_a_failed_request_left_in_a_block_is_not_seen(kind: Any, padded: bool) -> None:
    """All blocks are full of NaN, as after a request whose numbers overflowed; two others then use some of
    them.
    """
    results: list[torch.Tensor] = []
    for left in (0.0, torch.nan):
        attention, generator = kind(SHAPE, 40, CPU), torch.Generator().manual_seed(1)
        for tensor in attention.kv.of_layer(0):
            tensor[:, : 40 * 16] = left
        rows: list[torch.Tensor] = []
        for spans in (
            [Span(0, 20, [7, 3])],
            [Span(0, 299, range(10, 29))],
            [Span(20, 1, [7, 3]), Span(299, 1, range(10, 29))],
        ):
            count = sum(span.length for span in spans)
            q, k, v = (torch.randn(count, heads, 32, generator=generator) for heads in (6, 2, 2))
            plan = attention.plan(spans)
            if padded and kind is TorchAttention:
                plan = replace(plan, decodes=tuple(replace(group, stale=None) for group in plan.decodes))
            rows.append(attention.attend(0, q, k, v, plan))
        results.append(torch.cat(rows))
    assert results[1].isfinite().all()
    assert torch.equal(results[0], results[1])
