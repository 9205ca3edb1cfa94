"""Decode steps in fixed shapes, computed on a CPU: they give what the plain path gives, recorded or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from baton_engine.backend import padded_forward
from baton_engine.forward import Batch, TorchForward
from baton_engine.layers.attention import KVShape, Span
from baton_engine.models import build_model
from baton_engine.padded_decode import DecodeShape, DecodeShapes
from baton_engine.padded_forward import PaddedForward
from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.native_model import (
    BLOCK_SIZE,
    CPU,
    NUM_BLOCKS,
    Sequences,
    logits,
    native_checkpoint,
    torch_forward,
)
from tests.support.tiny_model import tiny_config, tiny_engine

CASES: dict[str, dict[str, Any]] = {
    "groups of 3": {},
    "biases": {"model_type": "qwen2", "num_attention_heads": 4, "num_key_value_heads": 2},
    "a window": {"model_type": "mistral", "sliding_window": 20},
}
LENGTHS = [258, 40, 300, 17, 130]


class Tracer:
    """Records as a GPU would: the operators that ran and the tensors that they ran on, no Python between."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def record(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recorded += 1

        def run() -> Tensor:  # make_fx wants a plain function
            return compute()

        traced = make_fx(run)()

        def replay() -> Tensor:
            self.replayed += 1
            return traced()

        return replay


def padded(tracer: Tracer | None = None, dtype: torch.dtype = torch.float32, **changes: Any) -> PaddedForward:
    model = build_model(native_checkpoint(**changes), dtype, CPU)
    spec = model.spec
    shape = KVShape(spec.num_layers, spec.num_kv_heads, spec.head_dim, BLOCK_SIZE, dtype)
    config = tiny_config(max_num_seqs=6, max_model_len=400)
    return padded_forward(model, shape, NUM_BLOCKS, CPU, config, tracer)


def steps(sequences: Sequences) -> list[Batch]:
    """Prompts, then decodes of some of the sequences together, in batches of one, five and two."""
    starts = [length - 3 for length in LENGTHS]
    prompts = sequences.batch([(one, 0, start) for one, start in enumerate(starts)])
    decodes = [[0], [0, 1, 2, 3, 4], [3, 1]]
    batches = [prompts]
    for together in decodes:
        batches.append(sequences.batch([(one, starts[one], starts[one] + 1) for one in together]))
        starts = [start + (one in together) for one, start in enumerate(starts)]
    return batches


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_it_gives_what_the_plain_path_gives(case: str, recording: bool) -> None:
    tracer = Tracer() if recording else None
    forward, plain = (
        padded(tracer, **CASES[case]),
        torch_forward(native_checkpoint(**CASES[case]), torch.float32),
    )
    with torch.inference_mode():
        forward.warm_up()
    sequences = Sequences(LENGTHS)
    for batch in steps(sequences):
        assert (logits(forward, batch) - logits(plain, batch)).abs().max() < 1e-5
    if tracer is not None:
        assert tracer.recorded == len(forward.shapes.all()) == 8  # 1, 2, 4, 6 requests × 16, 25 pages
        assert tracer.replayed == 3


def test_a_recorded_step_reads_its_inputs_only() -> None:
    """The same shape for other requests at other places: nothing of the first may be left in it."""
    forward, plain = padded(Tracer()), torch_forward(native_checkpoint(), torch.float32)
    with torch.inference_mode():
        forward.warm_up()
    sequences = Sequences([60] * 6)
    for one in (forward, plain):
        logits(one, sequences.batch([(index, 0, 50) for index in range(6)]))
    for batch in (
        sequences.batch([(0, 50, 51), (1, 50, 51), (2, 50, 51)]),
        sequences.batch([(5, 50, 51), (4, 50, 51), (3, 50, 51), (0, 51, 52)]),
        sequences.batch([(2, 51, 52), (1, 51, 52), (0, 52, 53)]),
    ):
        assert (logits(forward, batch) - logits(plain, batch)).abs().max() < 1e-5


def test_only_wanted_rows_and_none_come_back() -> None:
    forward, plain = padded(), torch_forward(native_checkpoint(), torch.float32)
    sequences = Sequences(LENGTHS)
    batch = steps(sequences)[2]
    for rows in ([], [3], [0, 4]):
        some = replace(batch, sample_rows=rows)
        assert torch.allclose(logits(forward, some), logits(plain, some), atol=1e-5)


def test_an_engine_answers_as_with_the_plain_path() -> None:
    """Requests that come, decode beside prompts of others, are preempted and end at different times."""

    def answers(recorder: Tracer | None) -> list[list[int]]:
        engine = tiny_engine(num_blocks=12, max_num_seqs=6, max_num_batched_tokens=20)
        plain = engine.core.runner.forward
        if recorder is not None:
            assert isinstance(plain, TorchForward)
            spec = plain.spec
            shape = KVShape(spec.num_layers, spec.num_kv_heads, spec.head_dim, 16, torch.float32)
            config = tiny_config(max_num_seqs=6)
            engine.core.runner.forward = padded_forward(plain.model, shape, 12, CPU, config, recorder)
            engine.core.runner.warm_up(16)
        for one in range(9):
            add(engine, ask(f"r{one}", list(range(one, 9 + 6 * one % 31))))
        drained = drain(engine)
        assert engine.core.stats().preemptions_total > 0
        return [token_ids(drained[f"r{one}"]) for one in range(9)]

    tracer = Tracer()
    assert answers(tracer) == answers(None)
    assert tracer.replayed > 20


def test_the_shapes() -> None:
    shapes = DecodeShapes.up_to(max_num_seqs=6, max_model_len=1_000, block_size=16)
    assert shapes.requests == (1, 2, 4, 6)
    assert shapes.pages == (16, 32, 63)
    assert shapes.all()[0] == DecodeShape(6, 63)
    assert len(shapes.all()) == 12

    def shape_for(*ends: int, length: int = 1) -> DecodeShape | None:
        spans = [Span(end - length, length, range(99)) for end in ends]
        return shapes.smallest_for(Batch([0] * len(ends), spans, []))

    assert shape_for(1) == (1, 16)
    assert shape_for(257, 5, 9) == (4, 32)
    assert shape_for(1_000, *[3] * 4) == (6, 63)
    assert shape_for(300, length=2) is None  # not a decode
    assert shape_for(*[5] * 7) is None  # more than seats
    assert DecodeShapes.up_to(4, 40, 16).pages == (3,)


def test_no_shape_gathers_more_than_a_group_may() -> None:
    shapes = DecodeShapes.up_to(256, 131_072, block_size=16, most_tokens=2**18)
    assert {shape.num_requests for shape in shapes.all() if shape.num_pages == 8_192} == {1, 2}
    assert max(requests * pages * 16 for requests, pages in shapes.all()) == 2**18
    long = Span(131_071, 1, range(8_192))
    assert shapes.smallest_for(Batch([0] * 3, [long] * 3, [])) is None
    assert replace(shapes, most_tokens=None).smallest_for(Batch([0] * 3, [long] * 3, [])) == (4, 8_192)
