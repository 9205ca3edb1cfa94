"""E9: a prompt exactly at, one under and one over the context is decided at admission, with both numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baton_engine import ContextLengthExceeded
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine

CONTEXT = 64


def test_one_token_of_room_is_enough_and_used() -> None:
    engine = tiny_engine(max_model_len=CONTEXT)
    add(engine, ask("a", [1] * (CONTEXT - 1), replace(GREEDY, max_tokens=None)))
    deltas = drain(engine)["a"]
    assert len(token_ids(deltas)) == 1
    assert deltas[-1].finish_reason == "length"


@pytest.mark.parametrize("over", [0, 1, 500])
def test_no_room_for_an_answer_is_refused(over: int) -> None:
    engine = tiny_engine(max_model_len=CONTEXT)
    with pytest.raises(ContextLengthExceeded) as caught:
        add(engine, ask("a", [1] * (CONTEXT + over), replace(GREEDY, max_tokens=None)))
    assert str(CONTEXT) in caught.value.message
    assert str(CONTEXT + over + 1) in caught.value.message
    assert caught.value.code == "context_length_exceeded"
    assert not engine.core.has_work
    assert engine.core.waiting_room.num_requests == 0


def test_prompt_and_answer_together_are_counted() -> None:
    engine = tiny_engine(max_model_len=CONTEXT)
    add(engine, ask("fits", [1] * 40, GREEDY))
    assert len(token_ids(drain(engine)["fits"])) == 24
    with pytest.raises(
        ContextLengthExceeded, match=r"context length is 64 tokens.*65 \(41 in the prompt, 24 for"
    ):
        add(engine, ask("over", [1] * 41, GREEDY))
