"""One step's tensors' worth of work, and the face of what computes it. Knows no requests and no sampling.

Two implementations: `TorchForward` here, in torch operators, on any device and in any dtype; and
`native.forward.NativeForward`, one call into compiled kernels. Each owns its KV tensors and their layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from baton_engine.layers.attention import AttentionBackend, Span
from baton_engine.models.decoder import DecoderModel
from baton_engine.models.spec import DecoderSpec


@dataclass(frozen=True)
class Batch:
    """token_ids of all spans behind one another; sample_rows are places in them whose logits are wanted."""

    token_ids: Sequence[int]
    spans: Sequence[Span]
    sample_rows: Sequence[int]


class ForwardPass(Protocol):
    @property
    def spec(self) -> DecoderSpec: ...

    def logits(self, batch: Batch) -> Tensor:
        """Stores the batch's keys and values; float32 (len(sample_rows), vocabulary), the caller's to edit
        and valid until the next call.
        """
        ...


class TorchForward:
    def __init__(self, model: DecoderModel, attention: AttentionBackend[Any], device: torch.device) -> None:
        self.model = model
        self.attention = attention
        self.device = device

    @property
    def spec(self) -> DecoderSpec:
        return self.model.spec

    def logits(self, batch: Batch) -> Tensor:
        positions = [at for span in batch.spans for at in range(span.start, span.end)]
        return self.model.forward(
            self._indices(batch.token_ids),
            self._indices(positions),
            self._indices(batch.sample_rows),
            attention=self.attention,
            plan=self.attention.plan(batch.spans),
        )

    def _indices(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).to(self.device)
