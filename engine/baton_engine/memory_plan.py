"""What a model will take, known before any of it is loaded; and the refusal, with the bill, of one that won't
fit.

Owns the arithmetic of weights, work space and KV pool. Knows configuration and shapes, reads no weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

from baton_engine.config import QUANTIZATION_BITS, EngineConfig
from baton_engine.errors import ConfigError, ModelLoadError
from baton_engine.layers.attention import KVShape
from baton_engine.layers.quantized import quantized_bytes
from baton_engine.models.loading import EMBEDDING, HEAD, kept_bits
from baton_engine.models.registry import WeightSource, read_spec
from baton_engine.models.spec import DecoderSpec

MEMORY_SHARE = 0.92
"""Of what is free: the rest is for what no plan knows."""

CPU_KV_SHARE = 0.25
CPU_KV_MOST_BYTES = 2 * 2**30
SMALLEST_CHAT_TOKENS = 512
"""An engine that could not hold one such chat is refused."""

COLUMN_UNIT = 32
MIB = 2**20


@runtime_checkable
class StoredWidths(Protocol):
    """A source that knows how many bits each tensor has in its quantised form; None: a float."""

    def stored_bits(self, name: str) -> int | None: ...


@dataclass(frozen=True)
class WeightPlan:
    """How the weights will lie in memory. bits: as configured. source: where what is quantised stays as it is
    stored. twice: a tied head is a second copy, in an order of its own."""

    spec: DecoderSpec
    bits: int | None
    float_bytes: int
    source: WeightSource | None = None
    twice: bool = False

    @property
    def num_bytes(self) -> int:
        total = (2 * self.spec.num_layers + 1) * self.spec.hidden_size * 4
        source = self.source if isinstance(self.source, StoredWidths) else None
        for names, rows, columns in matrices(self.spec):
            width = _width(names, self.bits, source)
            padded = -(-rows // COLUMN_UNIT) * COLUMN_UNIT
            copies = 2 if self.twice and width is None and names == (EMBEDDING,) else 1
            bytes_each = padded * columns * self.float_bytes
            total += copies * (bytes_each if width is None else quantized_bytes(padded, columns, width))
        return total


def planned_weights(
    config: EngineConfig, source: WeightSource, dtype: torch.dtype, device: torch.device, native: bool
) -> WeightPlan:
    """native: the kernels keep what a file holds quantised; torch does so only where a width is asked for."""
    spec, bits = read_spec(source), QUANTIZATION_BITS[config.quantization]
    packs = not native and device.type == "cpu" and dtype == torch.bfloat16
    return WeightPlan(
        spec,
        bits,
        dtype.itemsize,
        source=source if native or bits is not None else None,
        twice=packs and spec.tie_word_embeddings,
    )


@dataclass(frozen=True)
class DraftCost:
    """What a draft model takes beside the model: weights and work space, and its part of each block of KV."""

    fixed_bytes: int = 0
    block_bytes: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of everything, for num_blocks blocks of KV. block_bytes has a draft model's part in it."""

    weight_bytes: int
    work_bytes: int
    block_bytes: int
    block_size: int
    num_blocks: int
    budget_bytes: int
    draft_bytes: int = 0

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.block_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        return self.block_bytes // self.block_size

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.work_bytes + self.draft_bytes + self.kv_bytes

    def chats(self, num_tokens: int) -> int:
        """How many chats of this length the pool holds at once."""
        return self.num_blocks // -(-num_tokens // self.block_size)

    def bill(self) -> str:
        draft = f"draft model {_mib(self.draft_bytes)}, " if self.draft_bytes else ""
        return (
            f"weights {_mib(self.weight_bytes)}, work space {_mib(self.work_bytes)}, {draft}"
            f"KV {_mib(self.kv_bytes)} ({self.num_blocks * self.block_size:,} tokens of "
            f"{self.kv_bytes_per_token:,} bytes): together {_mib(self.total_bytes)} of "
            f"{_mib(self.budget_bytes)} that may be used"
        )


def plan_memory(
    config: EngineConfig,
    spec: DecoderSpec,
    shape: KVShape,
    weights: WeightPlan,
    free_bytes: int,
    share_kv: bool = True,
    draft: DraftCost | None = None,
) -> MemoryPlan:
    """num_blocks as configured, else what is left: on a CPU (share_kv) a part of it, since others live there
    too.

    Raises ModelLoadError with the bill if it doesn't fit, ConfigError if kv_memory_bytes is under one block.
    """
    budget = int(free_bytes * MEMORY_SHARE)
    max_model_len = min(config.max_model_len or spec.max_positions, spec.max_positions)
    work, draft = work_bytes(config, spec), draft or DraftCost()
    block_bytes = shape.bytes_per_block + draft.block_bytes
    left = budget - weights.num_bytes - work - draft.fixed_bytes
    num_blocks = _num_blocks(config, block_bytes, max_model_len, left, share_kv)
    plan = MemoryPlan(
        weights.num_bytes, work, block_bytes, config.block_size, num_blocks, budget, draft.fixed_bytes
    )
    if plan.total_bytes > budget:
        raise ModelLoadError(f"{config.model} does not fit: {plan.bill()}. {_advice(weights, plan)}")
    return plan


def _num_blocks(config: EngineConfig, block_bytes: int, max_model_len: int, left: int, share_kv: bool) -> int:
    if config.num_blocks is not None:
        return config.num_blocks
    if config.kv_memory_bytes is not None:
        if config.kv_memory_bytes < block_bytes:
            raise ConfigError(f"No memory for one KV block of {block_bytes} bytes; raise kv_memory_bytes.")
        return config.kv_memory_bytes // block_bytes
    most = config.max_num_seqs * -(-max_model_len // config.block_size)
    least = -(-min(SMALLEST_CHAT_TOKENS, max_model_len) // config.block_size)
    kv_bytes = min(int(left * CPU_KV_SHARE), CPU_KV_MOST_BYTES) if share_kv else left
    kv_bytes = int(kv_bytes * config.memory_share)
    return max(least, min(kv_bytes // block_bytes, most))


def _advice(weights: WeightPlan, plan: MemoryPlan) -> str:
    """What would fit instead."""
    least = -(-SMALLEST_CHAT_TOKENS // plan.block_size) * plan.block_bytes
    others = plan.work_bytes + plan.draft_bytes + least
    for name, bits in QUANTIZATION_BITS.items():
        narrower = replace(weights, bits=bits).num_bytes
        if narrower < plan.weight_bytes and narrower + others <= plan.budget_bytes:
            return f"With quantization {name} the weights take {_mib(narrower)} and it fits."
    if plan.weight_bytes + others <= plan.budget_bytes:
        return "A smaller KV pool fits: lower num_blocks or kv_memory_bytes."
    return "Free memory, give the container more, or take a smaller model."


def work_bytes(config: EngineConfig, spec: DecoderSpec) -> int:
    """Activations of the largest step, the logits of all seats with the sampler's copy, and the rotary table:
    cos and sin for every position the model has, which the kernels keep in a copy of their own."""
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    widest = max(spec.hidden_size, spec.intermediate_size, q_size)
    numbers = 2 * spec.hidden_size + 3 * q_size + 4 * kv_size + spec.intermediate_size + widest
    table = 2 * spec.rope.max_positions * spec.head_dim
    return 4 * (config.max_num_batched_tokens * numbers + 2 * config.max_num_seqs * spec.vocab_size + table)


def matrices(spec: DecoderSpec) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """(the tensors that lie together, rows, columns) of each matrix."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    yield (EMBEDDING,), spec.vocab_size, hidden
    if not spec.tie_word_embeddings:
        yield (HEAD,), spec.vocab_size, hidden
    for layer in range(spec.num_layers):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        qkv = tuple(f"{attention}.{letter}_proj.weight" for letter in "qkv")
        yield qkv, q_size + 2 * kv_size, hidden
        yield (f"{attention}.o_proj.weight",), hidden, q_size
        yield (f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight"), 2 * inner, hidden
        yield (f"{mlp}.down_proj.weight",), hidden, inner


def _width(names: tuple[str, ...], bits: int | None, source: StoredWidths | None) -> int | None:
    """Bits of a joined matrix: those of its widest part. None: floats."""
    limit = None if bits is None else kept_bits(names[0], bits)
    widths = [_narrower(source.stored_bits(name) if source else None, limit) for name in names]
    known = [width for width in widths if width is not None]
    return max(known) if len(known) == len(widths) else None


def _narrower(stored: int | None, limit: int | None) -> int | None:
    if stored is None or limit is None:
        return limit if stored is None else stored
    return min(stored, limit)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / MIB:,.0f} MiB"
