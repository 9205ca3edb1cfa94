"""E18: of a prompt that is wholly in the prefix cache at least one token is recomputed: right logits."""

from __future__ import annotations

import pytest

from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine


@pytest.mark.parametrize("length", [16, 32, 33, 48])
def test_the_answer_is_the_same(length: int) -> None:
    prompt = [(7 * index) % 250 for index in range(length)]
    engine = tiny_engine()
    add(engine, ask("cold", prompt))
    cold = token_ids(drain(engine)["cold"])
    request = add(engine, ask("warm", prompt))
    engine.core.step()
    assert request.num_cached_tokens == (length - 1) // 16 * 16 < length
    assert cold[:1] == request.token_ids[length:]
    drain(engine)
    assert request.token_ids[length:] == cold
