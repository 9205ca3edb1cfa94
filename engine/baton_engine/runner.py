"""From a step plan to logits. Owns the model, the attention backend and the flattening of chunks;
knows no queues, no sampling and no text.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from baton_engine.layers.attention import AttentionBackend, Span
from baton_engine.models.decoder import DecoderModel
from baton_engine.scheduler import StepPlan


class Runner:
    def __init__(self, model: DecoderModel, attention: AttentionBackend[Any], device: torch.device) -> None:
        self.model = model
        self.attention = attention
        self.device = device

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> Tensor:
        """Logits in float32: a row for each chunk that samples, then one for each prompt token that is
        scored, both in the order of the plan.
        """
        token_ids: list[int] = []
        positions: list[int] = []
        sample_rows: list[int] = []
        scored_rows: list[int] = []
        spans: list[Span] = []
        for chunk in plan.chunks:
            end = chunk.start + chunk.num_tokens
            scored_rows += [len(token_ids) + at - 1 - chunk.start for at in chunk.scored]
            token_ids += chunk.request.token_ids[chunk.start : end]
            positions += range(chunk.start, end)
            spans.append(Span(chunk.start, chunk.num_tokens, chunk.request.block_ids))
            if chunk.samples:
                sample_rows.append(len(token_ids) - 1)
        return self._forward(token_ids, positions, sample_rows + scored_rows, spans)

    @torch.inference_mode()
    def warm_up(self, num_tokens: int) -> None:
        """Runs one prompt chunk and one decode, so that no request pays for lazy initialisation.

        It writes into the first blocks: nobody holds them yet, and nobody reads what it did not write.
        """
        spec = self.model.spec
        count = min(num_tokens, spec.max_positions - 1)
        blocks = range(count + 1)  # more than enough whatever the block size is
        self._forward([0] * count, list(range(count)), [count - 1], [Span(0, count, blocks)])
        self._forward([0], [count], [0], [Span(count, 1, blocks)])

    def _forward(
        self, token_ids: list[int], positions: list[int], sample_rows: list[int], spans: list[Span]
    ) -> Tensor:
        return self.model.forward(
            self._indices(token_ids),
            self._indices(positions),
            self._indices(sample_rows),
            attention=self.attention,
            plan=self.attention.plan(spans),
        )

    def _indices(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).to(self.device)
