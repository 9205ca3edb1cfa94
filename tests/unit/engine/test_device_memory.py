"""The KV pool's share of a GPU, with a meter that says what it was told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from baton_engine import ModelLoadError
from baton_engine.device_memory import LargestStep, fit_to_device, kv_pool_bytes
from baton_engine.forward import Batch
from baton_engine.memory_plan import MemoryPlan
from baton_engine.models.spec import DecoderSpec
from tests.support.tiny_model import tiny_config

GIB = 2**30
STEP = LargestStep(num_tokens=512, num_requests=64, context=1_000, block_size=16, vocab_size=2**15)


class Meter:
    def __init__(self, total: int, free: int, peak: int) -> None:
        self.total, self.free, self.peak = total, free, peak

    def free_and_total(self) -> tuple[int, int]:
        return self.free, self.total

    def peak_of(self, run: Callable[[], None]) -> int:
        run()
        return self.peak


class Forward:
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    @property
    def spec(self) -> DecoderSpec:
        raise NotImplementedError

    def logits(self, batch: Batch) -> Tensor:
        self.batches.append(batch)
        return torch.zeros(len(batch.sample_rows), 1)


def test_the_bill() -> None:
    """80 GiB, 16 of them weights; 92 % is 73.6; a step takes 2, the sampler 64 rows × 32,768 × 32 bytes = 64
    MiB.
    """
    forward = Forward()
    meter = Meter(total=80 * GIB, free=64 * GIB, peak=2 * GIB)
    expected = int(80 * GIB * 0.92) - 16 * GIB - 2 * GIB - GIB // 16
    assert kv_pool_bytes(lambda: forward, STEP, meter) == expected


def test_the_largest_steps_are_run() -> None:
    forward = Forward()
    kv_pool_bytes(lambda: forward, STEP, Meter(GIB, GIB, 0))
    prompt, decode = forward.batches
    assert [(span.start, span.end) for span in prompt.spans] == [(488, 1_000)]
    assert len(prompt.sample_rows) == 64
    assert [(span.start, span.end) for span in decode.spans] == [(999, 1_000)] * 64
    pages: Sequence[int] = prompt.spans[0].block_ids
    assert (len(pages), set(pages)) == (63, {0})  # one block serves all


def test_nothing_left_is_not_hidden() -> None:
    assert kv_pool_bytes(Forward, STEP, Meter(total=GIB, free=GIB // 4, peak=GIB // 2)) < 0


def test_a_context_shorter_than_a_step() -> None:
    largest = LargestStep.of(tiny_config(max_num_batched_tokens=512), 100, 264)
    assert largest.num_tokens == 100
    assert largest.batches()[0].spans[0].start == 0


def test_the_plan_is_corrected_by_what_was_measured() -> None:
    plan = MemoryPlan(0, 0, block_bytes=1_000, block_size=16, num_blocks=50, budget_bytes=10**6)
    free = tiny_config(num_blocks=None)
    assert fit_to_device(plan, free, 30_999).num_blocks == 30
    assert fit_to_device(plan, free, 10**6).num_blocks == 50
    assert fit_to_device(plan, tiny_config(num_blocks=50), 50_000).num_blocks == 50
    with pytest.raises(ModelLoadError, match="1 blocks of 1,000 bytes are needed"):
        fit_to_device(plan, free, -5)
    with pytest.raises(ModelLoadError, match="50 blocks"):
        fit_to_device(plan, tiny_config(num_blocks=50), 49_999)
