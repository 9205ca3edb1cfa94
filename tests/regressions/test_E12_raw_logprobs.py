"""E12: logprobs are the model's own, whatever temperature, cuts, bias and penalties do to the choice."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from baton_engine import InvalidParameter, RequestDelta, SamplingParams
from tests.support.engine_driver import GREEDY, add, ask, drain, edit_logits
from tests.support.tiny_model import VOCAB_SIZE, tiny_engine

SHAPED = SamplingParams(
    max_tokens=6,
    temperature=0.1,
    top_p=0.5,
    seed=3,
    ignore_eos=True,
    logprobs=3,
    repetition_penalty=1.8,
    logit_bias={5: 20.0},
)
KNOWN = torch.tensor([0.5, 0.25, 0.125]).log()  # of the tokens 7, 8 and 9


def known_logits(sampling: SamplingParams) -> list[RequestDelta]:
    """One answer of a model that gives 7 the probability 1/2, 8 1/4, 9 1/8, and shares the rest."""
    engine = tiny_engine()

    def set_known(_: object, logits: torch.Tensor) -> None:
        logits[:] = torch.tensor(0.125 / (VOCAB_SIZE - 3)).log()
        logits[:, 7:10] = KNOWN

    edit_logits(engine, set_known)
    add(engine, ask("a", [1, 2, 3], sampling))
    return drain(engine)["a"]


def test_the_models_own_numbers_though_the_choice_is_shaped() -> None:
    deltas = known_logits(SHAPED)
    assert len(deltas) == 6
    for delta in deltas:
        (entry,) = delta.logprobs
        assert (entry.token_id,) == delta.token_ids
        assert [token_id for token_id, _ in entry.top] == [7, 8, 9]
        assert [value for _, value in entry.top] == pytest.approx(KNOWN.tolist(), abs=1e-5)
    assert deltas[0].logprobs[0].token_id == 5  # the bias chose it
    assert deltas[0].logprobs[0].logprob == pytest.approx(-7.644, abs=1e-3)  # ln(0.125 / 261)


def test_0_gives_the_chosen_token_alone_and_none_gives_nothing() -> None:
    with_own = known_logits(replace(GREEDY, logprobs=0, max_tokens=2))
    assert [delta.logprobs[0].top for delta in with_own] == [(), ()]
    assert with_own[0].logprobs[0].logprob == pytest.approx(-0.6931, abs=1e-4)
    assert [delta.logprobs for delta in known_logits(replace(GREEDY, max_tokens=2))] == [(), ()]


def test_asking_changes_no_token() -> None:
    plain, asked = known_logits(replace(SHAPED, logprobs=None)), known_logits(SHAPED)
    assert [delta.token_ids for delta in plain] == [delta.token_ids for delta in asked]


def test_at_most_20() -> None:
    assert len(known_logits(replace(GREEDY, logprobs=20))[0].logprobs[0].top) == 20
    with pytest.raises(InvalidParameter, match="logprobs is 21; it must be an integer from 0 to 20"):
        SamplingParams(logprobs=21)
