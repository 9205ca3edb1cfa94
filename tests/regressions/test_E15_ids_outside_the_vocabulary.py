"""E15: ids outside the vocabulary, negative ones too, are refused by name; the bound is the logits' width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baton_engine import InvalidParameter
from tests.support.engine_driver import GREEDY, add, ask, drain
from tests.support.tiny_model import VOCAB_SIZE, tiny_engine


@pytest.mark.parametrize("bad", [-1, VOCAB_SIZE, 10**12])
@pytest.mark.parametrize("param", ["prompt", "stop_token_ids", "resume_token_ids"])
def test_refused_by_name(bad: int, param: str) -> None:
    engine = tiny_engine()
    prompt = [1, bad] if param == "prompt" else [1]
    sampling = replace(GREEDY, stop_token_ids=(bad,)) if param == "stop_token_ids" else GREEDY
    resume = [bad] if param == "resume_token_ids" else []
    with pytest.raises(InvalidParameter, match=f"{param} holds {bad}") as caught:
        add(engine, ask("a", prompt, sampling, resume_token_ids=resume))
    assert caught.value.param == param


@pytest.mark.parametrize("bad", [-1, VOCAB_SIZE, 10**12])
@pytest.mark.parametrize("param", ["logit_bias", "allowed_token_ids"])
def test_rules_on_such_ids_are_refused_too(bad: int, param: str) -> None:
    rule = {param: {3: 1.0, bad: 1.0} if param == "logit_bias" else (3, bad)}
    with pytest.raises(InvalidParameter, match=f"{param} holds {bad}; ids go from 0 to 263") as caught:
        add(tiny_engine(), ask("a", [1], replace(GREEDY, **rule)))
    assert caught.value.param == param


def test_the_last_id_with_a_logit_is_allowed_though_it_has_no_text() -> None:
    engine = tiny_engine()
    add(engine, ask("a", [VOCAB_SIZE - 1], replace(GREEDY, stop_token_ids=(VOCAB_SIZE - 1,))))
    assert drain(engine)["a"][-1].finish_reason in ("length", "stop")
