"""One step's tensors' worth of work, and the face of what computes it. Knows no requests and no sampling.

`TorchForward` here computes in torch operators, on any device and in any dtype; `FixedShapeForward` does so
with the same bits for a request whatever else is in the batch; `native.forward.NativeForward` is one call
into compiled kernels, which have that property anyway. Each owns its KV tensors and their layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from baton_engine.layers.attention import AttentionBackend, Span
from baton_engine.layers.fixed_shape import ROW_TILE, padded, silu_by_rows
from baton_engine.layers.paged_kv import indices
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


@runtime_checkable
class Preparing(Protocol):
    """A ForwardPass that has something to do before the first request, when all memory is in place."""

    def warm_up(self) -> None: ...


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
        return indices(values, self.device)


class FixedShapeForward(TorchForward):
    """The deterministic one: all shapes are fixed, the batch is cut and filled up to them (`fixed_shape.py`).

    attention must compute a token the same however it is planned: `attention_fixed.FixedShapeAttention`.
    """

    def __init__(self, model: DecoderModel, attention: AttentionBackend[Any], device: torch.device) -> None:
        super().__init__(model, attention, device)
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        model.head.row_tile = ROW_TILE
        for layer in model.layers:
            layer.mlp.silu = silu_by_rows
            for linear in (layer.qkv, layer.output, layer.mlp.gate_up, layer.mlp.down):
                linear.row_tile = ROW_TILE

    def logits(self, batch: Batch) -> Tensor:
        positions = [at for span in batch.spans for at in range(span.start, span.end)]
        logits = self.model.forward(
            self._indices(padded(batch.token_ids)),
            self._indices(padded(positions)),
            self._indices(padded(batch.sample_rows)),
            attention=self.attention,
            plan=self.attention.plan(batch.spans),
        )
        return logits[: len(batch.sample_rows)]
