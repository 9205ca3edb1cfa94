"""How far a step is from what the machine could do at most.

`python -m bench.roofline MODEL [--kv-dtype int8] [--json FILE]`

Measures the two limits (bytes read and bfloat16 products a second) with torch, then steps of the engine's own
forward pass. Matrices and attention take turns, so each has a roof of its own, and a step's is their sum:

    matrices    weights read once, or 2 operations a parameter and token
    attention   keys and values read once, or 4 operations a query dimension and position seen
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from baton_engine import EngineConfig
from baton_engine.assembly import load_engine
from baton_engine.forward import Batch, ForwardPass
from baton_engine.layers.attention import SCALE_BYTES, Span
from baton_engine.models.spec import DecoderSpec

import torch  # isort: skip  (baton_engine comes before whatever might import torch)
from bench.peers.machine import describe  # isort: skip

SECONDS = 1.5
BLOCK_SIZE = 16
CONTEXT = 576
READ_BYTES = 1 << 29
PRODUCT_SIZE = 2048
STEPS = {
    "decode, batch 1": (1, 0),
    "decode, batch 8": (8, 0),
    "decode, batch 16": (16, 0),
    "decode, batch 32": (32, 0),
    "prompt of 512": (0, 512),
    "31 decodes beside a chunk of 128": (31, 128),
}
"""Name → decodes with CONTEXT tokens before them, tokens of a prompt chunk from its beginning."""


@dataclass(frozen=True)
class Limits:
    read_bytes_per_second: float
    operations_per_second: float


@dataclass(frozen=True)
class Part:
    """What one kind of work must read and compute at least."""

    num_bytes: float
    operations: float

    def memory_ms(self, limits: Limits) -> float:
        return 1e3 * self.num_bytes / limits.read_bytes_per_second

    def arithmetic_ms(self, limits: Limits) -> float:
        return 1e3 * self.operations / limits.operations_per_second

    def roof_ms(self, limits: Limits) -> float:
        return max(self.memory_ms(limits), self.arithmetic_ms(limits))


@dataclass(frozen=True)
class Row:
    """Times in ms."""

    step: str
    weights_read: float
    matrices_computed: float
    kv_read: float
    attention_computed: float
    roof: float
    measured: float


def best_seconds(work: Callable[[], object], seconds: float = SECONDS) -> float:
    """The 10th percentile of as many runs as fit: what the machine does when nobody interferes."""
    work()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 10]


def measure_limits() -> Limits:
    much = torch.ones(READ_BYTES // 4, dtype=torch.float32)
    square = torch.randn(PRODUCT_SIZE, PRODUCT_SIZE).to(torch.bfloat16)
    return Limits(
        READ_BYTES / best_seconds(much.sum),
        2 * PRODUCT_SIZE**3 / best_seconds(lambda: square @ square),
    )


def parts_of(spec: DecoderSpec, num_decodes: int, num_prompt: int, kv_bytes: float = 2) -> tuple[Part, Part]:
    """Matrices and attention of a step, with weights in bfloat16 and kv_bytes for each number of K and V."""
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layers = spec.num_layers * spec.hidden_size * (2 * q_size + 2 * kv_size + 3 * spec.intermediate_size)
    head = spec.hidden_size * spec.vocab_size
    tokens, sampled = num_decodes + num_prompt, num_decodes + bool(num_prompt)
    matrices = Part(2 * (layers + head), 2 * (layers * tokens + head * sampled))
    kept = num_decodes * (CONTEXT + 1) + num_prompt
    seen = num_decodes * (CONTEXT + 1) + num_prompt * (num_prompt + 1) / 2
    return matrices, Part(
        2 * kv_bytes * spec.num_layers * kv_size * kept, 4 * spec.num_layers * q_size * seen
    )


def batch_of(num_decodes: int, num_prompt: int) -> Batch:
    ids: list[int] = []
    spans: list[Span] = []
    rows: list[int] = []
    next_block = 0
    for start, length in [(CONTEXT, 1)] * num_decodes + [(0, num_prompt)] * bool(num_prompt):
        count = -(-(start + length) // BLOCK_SIZE)
        spans.append(Span(start, length, range(next_block, next_block + count)))
        next_block += count
        ids += [(7 * len(ids) + at) % 1_000 for at in range(length)]
        rows.append(len(ids) - 1)
    return Batch(ids, spans, rows)


def measure_steps(forward: ForwardPass, limits: Limits, kv_bytes: float = 2) -> list[Row]:
    rows: list[Row] = []
    for name, (num_decodes, num_prompt) in STEPS.items():
        matrices, attention = parts_of(forward.spec, num_decodes, num_prompt, kv_bytes)
        batch = batch_of(num_decodes, num_prompt)
        times = (
            matrices.memory_ms(limits),
            matrices.arithmetic_ms(limits),
            attention.memory_ms(limits),
            attention.arithmetic_ms(limits),
            matrices.roof_ms(limits) + attention.roof_ms(limits),
            1e3 * best_seconds(lambda batch=batch: forward.logits(batch)),
        )
        rows.append(Row(name, *(round(one, 2) for one in times)))
    return rows


def table(limits: Limits, rows: list[Row]) -> str:
    lines = [
        f"memory {limits.read_bytes_per_second / 1e9:.0f} GB/s, "
        f"bfloat16 {limits.operations_per_second / 1e9:.0f} GFLOP/s",
        "",
        "| step, ms | weights read | matrices | KV read | attention | roof | measured | of it |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.step} | {row.weights_read} | {row.matrices_computed} | {row.kv_read} "
        f"| {row.attention_computed} | {row.roof} | {row.measured} | {row.roof / row.measured:.0%} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.roofline", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    blocks = 32 * (CONTEXT // BLOCK_SIZE + 1) + 64
    config = EngineConfig(options.model, dtype="bfloat16", kv_dtype=options.kv_dtype, num_blocks=blocks)
    engine = load_engine(config)
    kv_bytes = 2 if options.kv_dtype != "int8" else 1 + SCALE_BYTES / engine.core.runner.forward.spec.head_dim
    with torch.inference_mode():
        limits = measure_limits()
        rows = measure_steps(engine.core.runner.forward, limits, kv_bytes)
    print(table(limits, rows))
    if options.json is not None:
        data = {"machine": describe(), "limits": asdict(limits), "steps": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
