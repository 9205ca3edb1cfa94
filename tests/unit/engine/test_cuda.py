"""On a GPU, where there is one: recorded steps, memory, determinism, the same tokens as on the CPU.

The shapes, the plans and the recording's logic are tested without one in `test_padded_forward.py`, the real
weights by `bench/gpu.sh`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from baton_engine import SamplingParams
from baton_engine.assembly import LoadedEngine
from baton_engine.device_memory import CudaMeter
from baton_engine.padded_forward import PaddedForward
from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.native_model import native_checkpoint
from tests.support.tiny_model import tiny_engine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")


def engine(**changes: Any) -> LoadedEngine:
    values = {"device": "cuda", "backend": "torch", "num_blocks": 512, "max_num_seqs": 32}
    return tiny_engine(native_checkpoint(), **(values | changes))


def answers(engine: LoadedEngine, numbers: range, **sampling: Any) -> list[list[int]]:
    values: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
    for one in numbers:
        prompt = [(7 * one + at) % 250 for at in range(5 + 3 * one)]
        add(engine, ask(f"r{one}", prompt, SamplingParams(**(values | sampling))))
    drained = drain(engine)
    return [token_ids(drained[f"r{one}"]) for one in numbers]


def test_float32_answers_as_on_the_cpu() -> None:
    expected = answers(engine(device="cpu"), range(20))
    assert answers(engine(), range(20)) == expected
    assert answers(engine(max_num_batched_tokens=40), range(20)) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recorded_steps_are_the_steps(dtype: str) -> None:
    recorded, plain = engine(dtype=dtype), engine(dtype=dtype, cuda_graphs=False)
    forward = recorded.core.runner.forward
    assert isinstance(forward, PaddedForward)
    assert forward.recorder is not None
    assert answers(recorded, range(20)) == answers(plain, range(20))
    drawn = {"temperature": 0.8, "top_p": 0.9, "seed": 3}
    assert answers(recorded, range(9), **drawn) == answers(plain, range(9), **drawn)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_deterministic_in_batches_of_1_to_32(dtype: str) -> None:
    deterministic = engine(dtype=dtype, deterministic=True)
    together = answers(deterministic, range(32))
    for size in (1, 2, 5, 16, 31):
        assert answers(deterministic, range(size)) == together[:size]


def test_the_pool_leaves_room_for_a_full_step() -> None:
    loaded = engine(num_blocks=None, max_model_len=1_024)
    assert len(answers(loaded, range(32))) == 32
    free, total = CudaMeter(torch.device("cuda")).free_and_total()
    assert 0 < free < total
