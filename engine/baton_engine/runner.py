"""From a step plan to logits. Owns the flattening of chunks; knows no queues, no sampling, no text, and
not what computes the forward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from baton_engine.forward import Batch, ForwardPass, Preparing
from baton_engine.layers.attention import Span
from baton_engine.scheduler import StepPlan
from baton_engine.speculation.verification import RowsByDepth


class Runner:
    def __init__(self, forward: ForwardPass) -> None:
        self.forward = forward

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> Tensor:
        """Logits in float32: the rows to sample from in the order of `RowsByDepth`, then one for each prompt
        token that is scored, in the order of the plan.
        """
        token_ids: list[int] = []
        sample_rows = RowsByDepth()
        scored_rows: list[int] = []
        spans: list[Span] = []
        for chunk in plan.chunks:
            scored_rows += [len(token_ids) + at - 1 - chunk.start for at in chunk.scored]
            token_ids += chunk.token_ids
            spans.append(Span(chunk.start, chunk.num_tokens, chunk.request.block_ids))
            if chunk.samples:
                sample_rows.add(chunk, len(token_ids) - 1)
        return self.forward.logits(Batch(token_ids, spans, sample_rows.in_order() + scored_rows))

    @torch.inference_mode()
    def warm_up(self, num_tokens: int) -> None:
        """Runs one prompt chunk and one decode, so that no request pays for lazy initialisation.

        It writes into the first blocks: nobody holds them yet, and nobody reads what it did not write.
        """
        count = min(num_tokens, self.forward.spec.max_positions - 1)
        blocks = range(count + 1)  # more than enough whatever the block size is
        self.forward.logits(Batch([0] * count, [Span(0, count, blocks)], [count - 1]))
        self.forward.logits(Batch([0], [Span(count, 1, blocks)], [0]))
        if isinstance(self.forward, Preparing):
            self.forward.warm_up()
