"""The torch forward pass for a GPU: decode steps in fixed shapes, recorded once and replayed; all else as it
comes.

Knows no CUDA: what records is handed in (`cuda_graphs.py`), and without it the fixed shapes are computed
anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from baton_engine.forward import Batch, TorchForward
from baton_engine.layers.attention_gpu import GPUAttention
from baton_engine.models.decoder import DecoderModel
from baton_engine.padded_decode import DecodeInputs, DecodeShape, DecodeShapes

_log = logging.getLogger(__name__)


class Recorder(Protocol):
    def record(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """What `compute` does, to be repeated on the same tensors, with what they hold by then."""
        ...


class PaddedForward(TorchForward):
    def __init__(
        self,
        model: DecoderModel,
        attention: GPUAttention,
        device: torch.device,
        shapes: DecodeShapes,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(model, attention, device)
        self.kv = attention.kv
        self.shapes = shapes
        self.recorder = recorder
        # One place for all results: recorded steps keep theirs, and there are many of them.
        self._rows = torch.empty(shapes.requests[-1], model.spec.vocab_size, device=device)
        self._inputs: dict[DecodeShape, DecodeInputs] = {}
        self._replays: dict[DecodeShape, Callable[[], Tensor]] = {}

    def logits(self, batch: Batch) -> Tensor:
        shape = self.shapes.smallest_for(batch)
        if shape is None:
            return super().logits(batch)
        inputs = self._inputs_of(shape)
        inputs.fill(batch)
        replay = self._replays.get(shape)
        rows = self._compute(inputs) if replay is None else replay()
        if len(batch.sample_rows) == len(batch.spans):
            return rows[: len(batch.spans)]
        return rows[self._indices(batch.sample_rows)]

    def warm_up(self) -> None:
        """Records every shape, the largest first. It stores into the spare block only."""
        if self.recorder is None:
            return
        started_at = time.monotonic()
        for shape in self.shapes.all():
            inputs = self._inputs_of(shape)
            inputs.fill(Batch([], [], []))
            self._replays[shape] = self.recorder.record(partial(self._compute, inputs))
        _log.info(
            "%d shapes of decode steps recorded in %.1f s", len(self._replays), time.monotonic() - started_at
        )

    def _inputs_of(self, shape: DecodeShape) -> DecodeInputs:
        if shape not in self._inputs:
            self._inputs[shape] = DecodeInputs(self.kv, shape)
        return self._inputs[shape]

    def _compute(self, inputs: DecodeInputs) -> Tensor:
        logits = self.model.forward(
            inputs.token_ids,
            inputs.positions,
            inputs.sample_rows,
            attention=self.attention,
            plan=inputs.plan(),
        )
        return self._rows[: logits.shape[0]].copy_(logits)
