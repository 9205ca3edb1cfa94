"""A model inside the native kernels: hands over its weights, then runs each step in one call."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from baton_engine.choosing import Draw
from baton_engine.errors import ModelLoadError
from baton_engine.forward import Batch
from baton_engine.layers.attention import KVShape
from baton_engine.layers.linear import Linear
from baton_engine.layers.quantized import QuantizedWeight
from baton_engine.layers.rotary import attention_factor, inverse_frequencies
from baton_engine.models.decoder import DecoderLayer, DecoderModel
from baton_engine.native.library import ISA_NUMBERS, DrawFields, NativeLibrary, Shape, Step, Weight

# As in csrc/api.cpp.
QKV, OUTPUT, GATE_UP, DOWN, HEAD, EMBEDDING = range(6)
INPUT_NORM, MLP_NORM, FINAL_NORM, QUERY_NORM, KEY_NORM = range(5)
NO_MEMORY = 1
COLUMN_GROUP = 32


class NativeForward:
    """Takes the model's weights away from it, layer by layer: none is held twice for long. Matrices stay what
    they are, bfloat16 or quantised; a tied embedding is read out of the head.
    """

    def __init__(
        self,
        library: NativeLibrary,
        isa: str,
        model: DecoderModel,
        shape: KVShape,
        num_blocks: int,
        num_threads: int,
    ) -> None:
        self.spec = model.spec
        self._c = library.c
        self._block_size = shape.block_size
        self._rows = torch.empty(0, self.padded_vocab_size, dtype=torch.float32)
        spec = model.spec
        sizes = Shape(
            spec.vocab_size, spec.hidden_size, spec.intermediate_size, spec.num_layers, spec.num_heads,
            spec.num_kv_heads, spec.head_dim, spec.max_positions, shape.block_size, num_blocks, num_threads,
            ISA_NUMBERS[isa], shape.kept == torch.int8, spec.rms_norm_eps,
        )  # fmt: skip
        self._model = ctypes.c_void_p()
        fault = self._c.baton_new(ctypes.byref(sizes), ctypes.byref(self._model))
        if fault:
            what = f"{num_blocks} KV blocks of {shape.bytes_per_block} bytes"
            raise ModelLoadError(f"No memory for {what}." if fault == NO_MEMORY else _no_threads(num_threads))
        # Not at exit: the engine's thread may still be inside, and the kernel takes all back anyway.
        weakref.finalize(self, self._c.baton_delete, self._model).atexit = False
        self._hand_over(model)

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.spec.vocab_size // COLUMN_GROUP) * COLUMN_GROUP

    @property
    def weight_bytes(self) -> int:
        """Of all matrices, as they lie in the kernels."""
        return self._c.baton_weight_bytes(self._model)

    def logits(self, batch: Batch) -> Tensor:
        """A view of the real columns of rows padded to whole column groups."""
        out = self._logits_rows(len(batch.sample_rows))
        starts = np.array([span.start for span in batch.spans], dtype=np.int32)
        lengths = np.array([span.length for span in batch.spans], dtype=np.int32)
        tables: list[int] = []
        table_starts = [0]
        for span in batch.spans:
            tables += span.block_ids[: -(-span.end // self._block_size)]
            table_starts.append(len(tables))
        arrays = (
            np.array(batch.token_ids, dtype=np.int64),
            starts,
            lengths,
            np.array(table_starts, dtype=np.int32),
            np.array(tables, dtype=np.int32),
            np.array(batch.sample_rows, dtype=np.int64),
        )
        step = Step(
            len(batch.token_ids),
            len(batch.spans),
            len(batch.sample_rows),
            *(array.ctypes.data for array in arrays),
            out.data_ptr(),
        )
        self._check(self._c.baton_run(self._model, ctypes.byref(step)))
        return out[:, : self.spec.vocab_size]

    def choose(self, logits: Tensor, draws: Sequence[Draw]) -> list[int | None]:
        """A Chooser: the rules of `choosing.choose`, in one call."""
        assert logits.dtype == torch.float32
        assert logits.stride(1) == 1
        count, size = logits.shape
        fields = (DrawFields * count)(*(
            (draw.temperature, draw.min_p, draw.top_k, draw.temperature <= 0, draw.top_p, draw.point)
            for draw in draws
        ))  # fmt: skip
        ids = (ctypes.c_int64 * count)()
        stride = logits.stride(0)
        self._check(self._c.baton_choose(self._model, logits.data_ptr(), stride, count, size, fields, ids))
        return [token_id if token_id >= 0 else None for token_id in ids]

    def _logits_rows(self, count: int) -> Tensor:
        """Kept between steps: fresh memory would cost a page fault for each 4 KiB, some ms at 32 rows."""
        if self._rows.shape[0] < count:
            self._rows = torch.empty(count, self.padded_vocab_size, dtype=torch.float32)
        return self._rows[:count]

    def _hand_over(self, model: DecoderModel) -> None:
        if self.spec.tie_word_embeddings:
            self._c.baton_tie_embedding(self._model)
        else:
            self._set_matrix(0, EMBEDDING, Linear(model.embedding, pack=False))
        self._set_rotary()
        self._set_vector(0, FINAL_NORM, model.norm.weight)
        self._set_matrix(0, HEAD, model.head)
        del model.head, model.embedding
        layers: list[DecoderLayer] = list(model.layers)
        model.layers = ()
        for index in range(len(layers)):
            layer = layers.pop(0)
            self._set_vector(index, INPUT_NORM, layer.input_norm.weight)
            self._set_vector(index, MLP_NORM, layer.mlp_norm.weight)
            if layer.qk_norm is not None:
                self._set_vector(index, QUERY_NORM, layer.qk_norm.q_weight)
                self._set_vector(index, KEY_NORM, layer.qk_norm.k_weight)
            self._c.baton_set_window(self._model, index, self.spec.window_of(index) or 0)
            self._set_matrix(index, QKV, layer.qkv)
            self._set_matrix(index, OUTPUT, layer.output)
            self._set_matrix(index, GATE_UP, layer.mlp.gate_up)
            self._set_matrix(index, DOWN, layer.mlp.down)

    def _set_rotary(self) -> None:
        """float32, not bfloat16 as in the torch path: the table is small, and far positions profit."""
        positions = torch.arange(self.spec.max_positions, dtype=torch.float32)
        angles = torch.outer(positions, inverse_frequencies(self.spec.rope))
        scale = attention_factor(self.spec.rope)
        cos, sin = (angles.cos() * scale).contiguous(), (angles.sin() * scale).contiguous()
        self._check(self._c.baton_set_rotary(self._model, cos.data_ptr(), sin.data_ptr()))

    def _set_vector(self, layer: int, name: int, values: Tensor) -> None:
        values = values.float().contiguous()
        self._check(self._c.baton_set_vector(self._model, layer, name, values.data_ptr()))

    def _set_matrix(self, layer: int, name: int, linear: Linear) -> None:
        assert not linear.packed
        parts = _parts(linear)  # held until it is packed
        self._check(self._c.baton_set_matrix(self._model, layer, name, _border(linear, parts)))

    @staticmethod
    def _check(result: int) -> None:
        if result != 0:
            raise MemoryError("the native kernels found no memory")


def _no_threads(count: int) -> str:
    return f"The system has no {count} threads for the engine; give it more, or a smaller num_threads."


def multiply(library: NativeLibrary, isa: str, linear: Linear, x: Tensor) -> Tensor:
    """One matrix product in the calling thread: x float32 (rows, in_features) → (rows, out_features). For
    tests and measurements: it packs the weight first."""
    parts = _parts(linear)
    x = x.float().contiguous()
    padded = -(-linear.out_features // COLUMN_GROUP) * COLUMN_GROUP
    out = torch.empty(x.shape[0], padded, dtype=torch.float32)
    border = _border(linear, parts)
    result = library.c.baton_multiply(border, ISA_NUMBERS[isa], x.data_ptr(), x.shape[0], out.data_ptr())
    assert result == 0
    return out[:, : linear.out_features]


def _border(linear: Linear, parts: tuple[Tensor | None, ...]) -> Any:
    addresses = (None if part is None else part.data_ptr() for part in parts)
    return ctypes.byref(Weight(_kind(linear.weight), *addresses, *linear.weight.shape))


def _kind(weight: Tensor | QuantizedWeight) -> int:
    """As enum Kind in csrc/model.h."""
    if isinstance(weight, Tensor):
        return 0
    return 1 if weight.bits == 8 else 2


def _parts(linear: Linear) -> tuple[Tensor | None, ...]:
    """Values, scales, minima, bias."""
    weight = linear.weight
    bias = None if linear.bias is None else linear.bias.float().contiguous()
    if isinstance(weight, QuantizedWeight):
        minima = None if weight.minima is None else weight.minima.contiguous()
        return weight.codes.contiguous(), weight.scales.contiguous(), minima, bias
    assert weight.dtype == torch.bfloat16
    return weight.contiguous(), None, None, bias
