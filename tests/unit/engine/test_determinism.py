"""The deterministic switch in torch: a row's logits are the same bits whatever is computed beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from baton_engine import SamplingParams
from baton_engine.forward import FixedShapeForward, TorchForward
from baton_engine.layers.attention import KVShape
from baton_engine.layers.attention_fixed import FixedShapeAttention
from baton_engine.layers.attention_torch import TorchAttention
from baton_engine.layers.fixed_shape import silu_by_rows
from baton_engine.models import build_model
from tests.support.engine_driver import add, ask, drain
from tests.support.native_model import BLOCK_SIZE, CPU, NUM_BLOCKS, Sequences, logits, native_checkpoint
from tests.support.tiny_model import TINY_CONFIG, TinyCheckpoint, tiny_engine

DTYPES = [torch.float32, torch.bfloat16]
CASES: dict[str, dict[str, Any]] = {
    "groups of 3": {},
    "wide enough for several threads": {"intermediate_size": 1_500, "hidden_size": 200},
    "biases, groups of 7": {"model_type": "qwen2", "num_attention_heads": 14, "num_key_value_heads": 2},
    "normed heads": {"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2},
    "a window": {"model_type": "mistral", "sliding_window": 37},
}


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def fixed_forward(checkpoint: TinyCheckpoint, dtype: torch.dtype) -> FixedShapeForward:
    model = build_model(checkpoint, dtype, CPU)
    spec = model.spec
    shape = KVShape(spec.num_layers, spec.num_kv_heads, spec.head_dim, BLOCK_SIZE, dtype)
    return FixedShapeForward(model, FixedShapeAttention(shape, NUM_BLOCKS, CPU), CPU)


def plain_forward(checkpoint: TinyCheckpoint, dtype: torch.dtype) -> TorchForward:
    model = build_model(checkpoint, dtype, CPU)
    spec = model.spec
    shape = KVShape(spec.num_layers, spec.num_kv_heads, spec.head_dim, BLOCK_SIZE, dtype)
    return TorchForward(model, TorchAttention(shape, NUM_BLOCKS, CPU), CPU)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_a_row_is_the_same_whatever_is_computed_beside_it(
    case: str, dtype: torch.dtype, threads: int
) -> None:
    """Bit for bit: prompts together, one alone, in chunks beside others, token by token in two orders."""
    checkpoint = native_checkpoint(**CASES[case])
    sequences = Sequences([40, 300, 17, 130])
    wanted = logits(fixed_forward(checkpoint, dtype), sequences.whole())[40:340]
    assert wanted.isfinite().all()
    alone = fixed_forward(checkpoint, dtype)
    assert torch.equal(logits(alone, sequences.batch([(1, 0, 300)])), wanted)
    chunked = fixed_forward(checkpoint, dtype)
    rows: list[torch.Tensor] = []
    for start, end in itertools.pairwise([0, 7, 64, 65, 250, 251, 252, 270, 300]):
        parts = [(0, 0, 40), (1, start, end), (2, 0, 1)]
        rows.append(logits(chunked, sequences.batch(parts))[40 : 40 + end - start])
    assert torch.equal(torch.cat(rows), wanted)
    decoded = [
        logits(chunked, sequences.batch([(1, at, at + 1), (3, 0, 130)] if at % 2 else [(1, at, at + 1)]))[:1]
        for at in range(280, 300)
    ]
    assert torch.equal(torch.cat(decoded), wanted[280:])


@pytest.mark.parametrize("case", CASES)
def test_it_computes_what_the_plain_path_computes(case: str) -> None:
    checkpoint, sequences = native_checkpoint(**CASES[case]), Sequences([40, 300, 17, 1, 5, 260])
    fixed = logits(fixed_forward(checkpoint, torch.float32), sequences.whole())
    plain = logits(plain_forward(checkpoint, torch.float32), sequences.whole())
    assert (fixed - plain).abs().max() <= 1e-4


def test_blocks_of_another_size_and_a_batch_of_many_tiles() -> None:
    checkpoint = TinyCheckpoint(config=TINY_CONFIG)
    model = build_model(checkpoint, torch.float32, CPU)
    shape = KVShape(2, 2, 8, 3, torch.float32)  # 86 blocks of 3 make a partition of 258
    forward = FixedShapeForward(model, FixedShapeAttention(shape, 3 * NUM_BLOCKS, CPU), CPU)
    sequences = Sequences([30, 41] * 10)
    blocks = iter(range(3 * NUM_BLOCKS))
    sequences.blocks = [[next(blocks) for _ in range(14)] for _ in range(20)]
    together = logits(forward, sequences.whole())
    row = 0
    for one, length in enumerate([30, 41] * 10):
        assert torch.equal(logits(forward, sequences.batch([(one, 0, length)])), together[row : row + length])
        row += length


def test_silu_does_not_depend_on_the_row() -> None:
    width = 50
    halves = torch.randn(1, 2 * width).expand(2_000, -1).contiguous()
    result = silu_by_rows(halves[:, :width])
    assert (result == result[0]).all()
    assert torch.allclose(result[0], torch.nn.functional.silu(halves[0, :width]))


@pytest.mark.parametrize(
    ("dtype", "kv_dtype"), [("float32", "auto"), ("bfloat16", "auto"), ("bfloat16", "int8")]
)
def test_batches_of_1_to_32_and_a_warm_prefix_cache_give_the_same(dtype: str, kv_dtype: str) -> None:
    """Tokens and the model's own log-probabilities, in an engine."""
    engine = tiny_engine(
        native_checkpoint(),
        deterministic=True,
        backend="torch",
        dtype=dtype,
        kv_dtype=kv_dtype,
        num_blocks=512,
        max_num_seqs=32,
        max_num_batched_tokens=96,
    )
    assert isinstance(engine.core.runner.forward, FixedShapeForward)
    greedy = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True, logprobs=0)
    prompts = [[(7 * one + at) % 250 for at in range(5 + 3 * one)] for one in range(32)]

    def answers(of: list[int]) -> list[tuple[Any, ...]]:
        for one in of:
            add(engine, ask(f"r{one}", prompts[one], greedy))
        drained = drain(engine)
        return [tuple(entry for delta in drained[f"r{one}"] for entry in delta.logprobs) for one in of]

    together = answers(list(range(32)))
    assert len(set(together)) == 32
    assert engine.core.stats().prefix_hit_tokens_total == 0
    for size in (1, 2, 3, 7, 16, 31):
        first = 32 - size
        assert answers(list(range(first, 32))) == together[first:]
    assert engine.core.stats().prefix_hit_tokens_total > 1_000
