"""E13: at temperature 0 the logits are penalised first, then the best is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from baton_engine import SamplingParams
from baton_engine.assembly import LoadedEngine
from baton_engine.request import Request
from tests.support.engine_driver import GREEDY, add, ask, drain, edit_logits, token_ids
from tests.support.tiny_model import tiny_engine


def ladder(_: Sequence[Request], logits: Tensor) -> None:
    """Token n has the logit 10 - n, down to 0 from 10 on: greedy without penalties says 0 for ever."""
    logits[:] = (10.0 - torch.arange(logits.shape[1])).clamp(min=0)


def answer(engine: LoadedEngine, sampling: SamplingParams) -> list[int]:
    edit_logits(engine, ladder)
    add(engine, ask("a", [100, 101], sampling))
    return token_ids(drain(engine)["a"])


def test_presence() -> None:
    sampling = replace(GREEDY, max_tokens=6, presence_penalty=1.5)
    # 10 → 8.5 once said: 1 (9) goes next, then 0 (8.5 over 8), and since presence counts once, 0 stays
    assert answer(tiny_engine(), sampling) == [0, 1, 0, 0, 0, 0]


def test_frequency() -> None:
    sampling = replace(GREEDY, max_tokens=6, frequency_penalty=0.75)
    #   0: 10    9.25  8.5 8.5 7.75 7.75;   1: 9 9 9 8.25 8.25 7.5;   2: 8
    assert answer(tiny_engine(), sampling) == [0, 0, 1, 0, 1, 2]


def test_repetition() -> None:
    sampling = replace(GREEDY, max_tokens=4, repetition_penalty=2.0)
    assert answer(tiny_engine(), sampling) == [0, 1, 2, 3]


def test_the_same_after_preemption_and_after_a_resume() -> None:
    sampling = replace(GREEDY, max_tokens=40, frequency_penalty=0.3, repetition_penalty=1.1)
    roomy = tiny_engine()
    prompt = list(range(30))
    add(roomy, ask("s", prompt, sampling))
    expected = token_ids(drain(roomy)["s"])
    assert len(set(expected)) > 10
    tight = tiny_engine(num_blocks=20, block_size=4)
    add(tight, ask("first", [3] * 30, GREEDY))
    request = add(tight, ask("s", prompt, sampling))
    assert token_ids(drain(tight)["s"]) == expected
    assert request.num_preemptions > 0
    other = tiny_engine()
    add(other, ask("s", prompt, sampling, resume_token_ids=expected[:15]))
    assert token_ids(drain(other)["s"]) == expected[15:]
