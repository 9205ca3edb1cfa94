"""Tiny random models in shapes that the native kernels serve, inside them and beside them in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from baton_engine.config import QUANTIZATION_BITS
from baton_engine.forward import Batch, ForwardPass, TorchForward
from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.attention_torch import TorchAttention
from baton_engine.models import build_model
from baton_engine.models.registry import WeightSource
from baton_engine.native.cache import NativeUnavailable
from baton_engine.native.forward import NativeForward
from baton_engine.native.library import ISA_NUMBERS, load_library
from tests.support.tiny_model import TINY_CONFIG, TinyCheckpoint

CPU = torch.device("cpu")
BLOCK_SIZE = 16
NUM_BLOCKS = 96
NATIVE_CONFIG = TINY_CONFIG | {
    "hidden_size": 96,
    "intermediate_size": 80,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 1024,
}


def native_checkpoint(**changes: Any) -> TinyCheckpoint:
    return TinyCheckpoint(config=NATIVE_CONFIG | changes)


def usable_isas() -> list[str]:
    try:
        best = load_library().isa()
    except NativeUnavailable:
        return []
    return [name for name, number in ISA_NUMBERS.items() if number <= ISA_NUMBERS[best]]


def isa_parameters() -> list[Any]:
    usable = usable_isas()
    return [
        pytest.param(isa, marks=pytest.mark.skipif(isa not in usable, reason=f"no compiler or no {isa} here"))
        for isa in ISA_NUMBERS
    ]


def native_forward(
    checkpoint: TinyCheckpoint,
    isa: str,
    num_threads: int = 2,
    quantization: str | None = None,
    kv_dtype: torch.dtype | None = None,
) -> NativeForward:
    bits = QUANTIZATION_BITS[quantization]
    model = build_model(checkpoint, torch.bfloat16, CPU, pack=False, bits=bits)
    spec = model.spec
    shape = KVShape(spec.num_layers, spec.num_kv_heads, spec.head_dim, BLOCK_SIZE, torch.bfloat16, kv_dtype)
    return NativeForward(load_library(), isa, model, shape, NUM_BLOCKS, num_threads)


def float32_forward(checkpoint: TinyCheckpoint, kv_dtype: torch.dtype | None = None) -> TorchForward:
    """The kernels' bfloat16 weights, computed with in float32: what is left is their own error."""
    return torch_forward(RoundedCheckpoint(checkpoint), torch.float32, kv_dtype=kv_dtype)


def torch_forward(
    source: WeightSource, dtype: torch.dtype, bits: int | None = None, kv_dtype: torch.dtype | None = None
) -> TorchForward:
    model = build_model(source, dtype, CPU, bits=bits)
    spec = model.spec
    shape = KVShape(spec.num_layers, spec.num_kv_heads, spec.head_dim, BLOCK_SIZE, dtype, kv_dtype)
    return TorchForward(model, TorchAttention(shape, NUM_BLOCKS, CPU), CPU)


class RoundedCheckpoint:
    def __init__(self, checkpoint: TinyCheckpoint) -> None:
        self.config = checkpoint.config
        self._checkpoint = checkpoint

    def tensors(self) -> Any:
        return ((name, tensor.bfloat16()) for name, tensor in self._checkpoint.tensors())


class Sequences:
    """Some token sequences in blocks that lie in no order; batches over parts of them."""

    def __init__(self, lengths: Sequence[int], vocab_size: int = 264, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.token_ids = [
            torch.randint(0, vocab_size, (length,), generator=generator).tolist() for length in lengths
        ]
        free = torch.randperm(NUM_BLOCKS, generator=generator).tolist()
        self.blocks = [[free.pop() for _ in range(-(-length // BLOCK_SIZE))] for length in lengths]

    def batch(self, parts: Sequence[tuple[int, int, int]]) -> Batch:
        """parts: (sequence, start, end); the logits of every token are wanted."""
        token_ids = [token for one, start, end in parts for token in self.token_ids[one][start:end]]
        spans = [Span(start, end - start, self.blocks[one]) for one, start, end in parts]
        return Batch(token_ids, spans, range(len(token_ids)))

    def whole(self) -> Batch:
        return self.batch([(one, 0, len(tokens)) for one, tokens in enumerate(self.token_ids)])


def logits(forward: ForwardPass, batch: Batch) -> Tensor:
    with torch.inference_mode():
        return forward.logits(batch).clone()
