"""How much of a GPU the KV pool may take: the budget, less what is taken already, less what the largest step
needs.

The largest step is run, not guessed: once with as many prompt tokens as a step may have, at the end of the
longest context, and once with all seats decoding there. Both use one block for all pages, so a pool of one
block is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from baton_engine.config import EngineConfig
from baton_engine.errors import ModelLoadError
from baton_engine.forward import Batch, ForwardPass
from baton_engine.layers.attention import Span
from baton_engine.memory_plan import MEMORY_SHARE, MIB, MemoryPlan

SAMPLING_BYTES = 32  # for each logit of a step that draws: the sampler's copies, some in float64


@dataclass(frozen=True)
class LargestStep:
    """The limits of a step, and the widths that its memory depends on."""

    num_tokens: int
    num_requests: int
    context: int
    block_size: int
    vocab_size: int

    @classmethod
    def of(cls, config: EngineConfig, max_model_len: int, vocab_size: int) -> LargestStep:
        num_tokens = min(config.max_num_batched_tokens, max_model_len)
        return cls(num_tokens, config.max_num_seqs, max_model_len, config.block_size, vocab_size)

    def batches(self) -> list[Batch]:
        pages = [0] * -(-self.context // self.block_size)
        prompt = Span(self.context - self.num_tokens, self.num_tokens, pages)
        decode = Span(self.context - 1, 1, pages)
        return [
            Batch([0] * self.num_tokens, [prompt], [0] * self.num_requests),
            Batch([0] * self.num_requests, [decode] * self.num_requests, range(self.num_requests)),
        ]

    @property
    def sampling_bytes(self) -> int:
        return self.num_requests * self.vocab_size * SAMPLING_BYTES


class MemoryMeter(Protocol):
    def free_and_total(self) -> tuple[int, int]:
        """Bytes; what this process keeps for later without using it counts as free."""
        ...

    def peak_of(self, run: Callable[[], None]) -> int:
        """The most that `run` held at a time beyond what was held before."""
        ...


class CudaMeter:
    def __init__(self, device: torch.device) -> None:
        self.device = device

    def free_and_total(self) -> tuple[int, int]:
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)

    def peak_of(self, run: Callable[[], None]) -> int:
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        run()
        return torch.cuda.max_memory_allocated(self.device) - before


def kv_pool_bytes(new_forward: Callable[[], ForwardPass], largest: LargestStep, meter: MemoryMeter) -> int:
    """new_forward makes a forward pass with a pool of one block; its weights are on the device already.

    0 or less: nothing is left for a pool.
    """

    def run() -> None:
        forward = new_forward()
        for batch in largest.batches():
            forward.logits(batch)

    with torch.inference_mode():
        peak = meter.peak_of(run)
    free, total = meter.free_and_total()
    return int(total * MEMORY_SHARE) - (total - free) - peak - largest.sampling_bytes


def fit_to_device(plan: MemoryPlan, config: EngineConfig, pool_bytes: int) -> MemoryPlan:
    """The plan with no more blocks than fit. Raises ModelLoadError if those that are asked for do not."""
    fitting = pool_bytes // plan.block_bytes
    asked = config.num_blocks is not None or config.kv_memory_bytes is not None
    if fitting < 1 or (asked and fitting < plan.num_blocks):
        needed = plan.num_blocks if asked else 1
        left = max(pool_bytes, 0) / MIB
        raise ModelLoadError(
            f"{config.model} does not fit the GPU: beside weights and largest step {left:,.0f} MiB of it "
            f"are left for KV, and {needed} blocks of {plan.block_bytes:,} bytes are needed. Lower "
            "max_num_batched_tokens, max_num_seqs or max_model_len, or ask for less KV."
        )
    return replace(plan, num_blocks=min(plan.num_blocks, fitting))
