"""Rules of choice through the whole step loop: from the words of a request to its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from baton_engine import InvalidParameter, SamplingParams
from baton_engine.request import Request
from tests.support.engine_driver import GREEDY, add, ask, drain, edit_logits, text, token_ids
from tests.support.tiny_model import EOS, VOCAB_SIZE, tiny_engine


def say(words: bytes) -> Any:
    """A model that says `words`, and a dash as its second choice."""

    def prefer(requests: Sequence[Request], logits: Tensor) -> None:
        for row, request in enumerate(requests):
            logits[row] = 0
            logits[row, ord("-")] = 1
            logits[row, words[request.num_answer_tokens % len(words)]] = 2

    return prefer


@pytest.mark.parametrize(
    ("bad_words", "expected"),
    [
        ((), "a bad cat, bad"),
        (("bad",), "a ba- cat, ba-"),
        (("bad cat", "a"), "- b-d c-t, b-d"),
        (("dog",), "a bad cat, bad"),
    ],
)
def test_bad_words(bad_words: tuple[str, ...], expected: str) -> None:
    engine = tiny_engine()
    edit_logits(engine, say(b"a bad cat, bad"))
    add(engine, ask("a", [1], replace(GREEDY, max_tokens=14, bad_words=bad_words)))
    assert text(drain(engine)["a"]) == expected


def test_bad_words_are_spelled_with_and_without_a_space() -> None:
    request = add(tiny_engine(), ask("a", [1], replace(GREEDY, bad_words=("no", " no"))))
    assert request.bad_words == (tuple(b"no"), tuple(b" no"), tuple(b"  no"))


def test_a_bad_word_spelled_with_ids_beyond_the_logits_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine()
    monkeypatch.setattr(engine.tokenizer, "encode", lambda text: [70, VOCAB_SIZE] if text[0] == " " else [71])
    request = add(engine, ask("a", [1], replace(GREEDY, bad_words=("odd",))))
    assert request.bad_words == ((71,),)
    assert drain(engine)["a"][-1].finish_reason == "length"


def test_only_allowed_ids_are_drawn() -> None:
    engine = tiny_engine()
    sampling = SamplingParams(max_tokens=40, temperature=1.5, seed=1, allowed_token_ids=(65, 66, 67))
    add(engine, ask("a", [1], sampling))
    assert set(token_ids(drain(engine)["a"])) == {65, 66, 67}


def test_allowing_nothing_but_ends_before_min_tokens_is_refused() -> None:
    sampling = SamplingParams(max_tokens=4, min_tokens=2, allowed_token_ids=(EOS,))
    with pytest.raises(InvalidParameter, match="nothing but ids that end the answer"):
        add(tiny_engine(), ask("a", [1], sampling))


def test_a_request_whose_rules_leave_nothing_fails_alone() -> None:
    engine = tiny_engine()
    add(engine, ask("none", [1], replace(GREEDY, allowed_token_ids=(65,), bad_words=("A",))))
    add(engine, ask("good", [1], GREEDY))
    answers = drain(engine)
    assert answers["none"][-1].error is not None
    assert answers["none"][-1].error.code == "no_token_left"
    assert len(token_ids(answers["good"])) == 24


@pytest.mark.parametrize(
    ("sampling", "sentence"),
    [
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; it must be a number over 0"),
        ({"presence_penalty": 2.1}, "presence_penalty is 2.1; it must be a number from -2 to 2"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty is nan"),
        ({"logit_bias": {3: 101}}, "logit_bias is 101; it must be a map to numbers from -100 to 100"),
        ({"logit_bias": {"3": 1}}, "logit_bias is '3'; it must be a map from integers"),
        ({"allowed_token_ids": ()}, r"allowed_token_ids is \(\); it must be left out"),
        ({"bad_words": ("ok", " ")}, "bad_words is ' '; it must be made of words"),
        ({"prompt_logprobs": -1}, "prompt_logprobs is -1; it must be an integer from 0 to 20"),
    ],
)
def test_bad_values_are_refused_by_name(sampling: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidParameter, match=sentence):
        SamplingParams(**sampling)


def test_seeded_draws_with_rules_do_not_depend_on_the_batch() -> None:
    sampling = SamplingParams(
        max_tokens=20, seed=9, frequency_penalty=0.9, repetition_penalty=1.2, logit_bias={70: 3.0}, top_p=0.9
    )
    alone = tiny_engine()
    add(alone, ask("a", [5, 6, 7], sampling))
    expected = token_ids(drain(alone)["a"])
    engine = tiny_engine()
    for index in range(4):
        add(engine, ask(f"other{index}", [index] * 9, replace(sampling, seed=None, presence_penalty=1.0)))
    add(engine, ask("a", [5, 6, 7], sampling))
    assert token_ids(drain(engine)["a"]) == expected
    assert torch.tensor(expected).unique().numel() > 5
