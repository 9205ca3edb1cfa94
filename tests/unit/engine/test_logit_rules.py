"""Each rule against numbers worked out by hand, and all of them in their documented order."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from baton_engine.logit_rules import LogitRules
from baton_engine.request import Request
from baton_engine.sampler import Sampler
from baton_engine.sampling_params import SamplingParams
from baton_engine.token_counts import TokenCounts

NEVER = float("-inf")


def request(
    prompt: tuple[int, ...] = (0,),
    answer: tuple[int, ...] = (),
    bad_words: tuple[tuple[int, ...], ...] = (),
    ends: frozenset[int] = frozenset(),
    **sampling: Any,
) -> Request:
    if bad_words:
        sampling["bad_words"] = ("as spelled",)
    params = SamplingParams(**sampling)
    one = Request("r", prompt, params, 1_000, seed=0, bad_words=bad_words, end_token_ids=ends)
    one.token_ids += answer
    return one


def edited(logits: list[float], one: Request) -> list[float]:
    rows = torch.tensor([logits])
    LogitRules().apply(rows, [one])
    return rows[0].tolist()


def test_allowed_ids_leave_the_others_impossible() -> None:
    assert edited([1.0, 2.0, 3.0], request(allowed_token_ids=(2, 0, 2))) == [1.0, NEVER, 3.0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((), [NEVER, 1.0, 1.0, 1.0]),  # only the word of one token can be completed
        ((1,), [NEVER, 1.0, NEVER, 1.0]),  # 1 2
        ((1, 2), [NEVER, 1.0, 1.0, NEVER]),  # 1 2 3, though the rule above would have stopped the 2
        ((3, 1), [NEVER, 1.0, NEVER, 1.0]),
        ((2, 3), [NEVER, 1.0, 1.0, 1.0]),
    ],
)
def test_bad_words_lose_the_token_that_would_complete_them(
    answer: tuple[int, ...], expected: list[float]
) -> None:
    words = ((0,), (1, 2), (1, 2, 3))
    assert edited([1.0] * 4, request(prompt=(1, 2), answer=answer, bad_words=words)) == expected


def test_a_bad_word_that_the_prompt_began_is_not_the_answers() -> None:
    assert edited([1.0] * 3, request(prompt=(0, 1), bad_words=((1, 2),))) == [1.0] * 3


def test_bias_is_added_and_cannot_bring_back_what_is_forbidden() -> None:
    one = request(logit_bias={0: 1.5, 1: 100, 2: -100}, ends=frozenset({1}), min_tokens=1)
    assert edited([1.0, 2.0, 3.0, 4.0], one) == [2.5, NEVER, -97.0, 4.0]


def test_the_three_penalties() -> None:
    """Token 0 only in the prompt, 1 three times in the answer, 2 once, 3 never."""
    one = request(
        prompt=(0, 0),
        answer=(1, 1, 2, 1),
        repetition_penalty=2.0,
        frequency_penalty=0.5,
        presence_penalty=0.25,
    )
    #      prompt: 4 / 2;  4 / 2 - 3 × 0.5 - 0.25;  -4 × 2 - 0.5 - 0.25;  untouched
    assert edited([4.0, 4.0, -4.0, 4.0], one) == [2.0, 0.25, -8.75, 4.0]


def test_presence_and_frequency_leave_the_prompt_alone() -> None:
    one = request(prompt=(0, 1), answer=(1,), presence_penalty=1.0, frequency_penalty=-0.5)
    assert edited([4.0, 4.0, 4.0], one) == [4.0, 3.5, 4.0]


def test_bias_comes_before_the_repetition_penalty() -> None:
    one = request(prompt=(0,), logit_bias={0: 3}, repetition_penalty=2.0)
    assert edited([-1.0, 0.0], one) == [1.0, 0.0]  # (-1 + 3) / 2, and not -1 × 2 + 3


def test_temperature_0_takes_the_best_of_what_is_left() -> None:
    logits = torch.tensor([[5.0, 4.0, 3.0]])
    one = request(prompt=(0,), answer=(0,), temperature=0, presence_penalty=1.5)
    assert Sampler().sample(logits, [one])[0].token_id == 1


def test_rows_of_all_kinds_do_not_touch_each_other() -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(7, 50, generator=generator)
    requests = [
        request(),
        request(allowed_token_ids=(3, 9)),
        request(answer=(7, 8), bad_words=((8, 5), (6,))),
        request(ends=frozenset({4, 5}), min_tokens=3),
        request(logit_bias={1: 2.0, 49: -3.0}),
        request(prompt=tuple(range(30)), answer=(1, 2, 2), repetition_penalty=1.3),
        request(answer=(2, 2, 40), frequency_penalty=0.7, logit_bias={2: 1.0}),
    ]
    together = logits.clone()
    LogitRules().apply(together, requests)
    alone = [edited(logits[row].tolist(), one) for row, one in enumerate(requests)]
    assert together.tolist() == alone
    assert alone[0] == logits[0].tolist()


def test_counts_follow_the_tokens_through_preemption_and_resume() -> None:
    one = request(prompt=(9, 9), answer=(1, 2))
    counts = TokenCounts(one, with_prompt=True)
    assert [part.tolist() for part in counts.up_to_date(one)] == [[9, 1, 2], [0, 1, 1]]
    one.num_computed_tokens = 0  # preempted: its tokens stay
    one.token_ids += [2, 3]
    assert [part.tolist() for part in counts.up_to_date(one)] == [[9, 1, 2, 3], [0, 1, 2, 1]]
    resumed = Request("r", (9, 9), SamplingParams(), 10, seed=0, resume_token_ids=(1, 2, 2, 3))
    again = TokenCounts(resumed, with_prompt=False).up_to_date(resumed)
    assert [part.tolist() for part in again] == [[1, 2, 3], [1, 2, 1]]


def test_counts_grow_past_their_first_room() -> None:
    one = request(prompt=(0,), answer=tuple(range(500)))
    ids, counts = TokenCounts(one, with_prompt=False).up_to_date(one)
    assert ids.tolist() == list(range(500))
    assert counts.tolist() == [1.0] * 500


def test_rules_go_with_their_request() -> None:
    rules = LogitRules()
    one = request(repetition_penalty=1.5)
    rules.apply(torch.zeros(1, 4), [one])
    assert len(rules._compiled) == 1
    del one
    gc.collect()
    assert len(rules._compiled) == 0


def test_rows_without_rules_compile_nothing() -> None:
    rules = LogitRules()
    plain = request(temperature=0.7, top_k=3, logprobs=2)
    logits = torch.ones(1, 4)
    rules.apply(logits, [plain, replace_sampling(plain, repetition_penalty=1.0)])
    assert logits.tolist() == [[1.0] * 4]
    assert len(rules._compiled) == 0


def replace_sampling(one: Request, **changes: Any) -> Request:
    return replace(one, sampling=replace(one.sampling, **changes))


def by_the_book(logits: list[float], one: Request) -> list[float]:
    """The documented order in plain Python, one token at a time."""
    params, answer = one.sampling, one.token_ids[one.num_prompt_tokens :]
    edited_row: list[float] = []
    for token_id, logit in enumerate(logits):
        value = logit
        if params.allowed_token_ids is not None and token_id not in params.allowed_token_ids:
            value = NEVER
        for word in one.bad_words:
            if [*answer, token_id][-len(word) :] == list(word):
                value = NEVER
        if len(answer) < params.min_tokens and token_id in one.end_token_ids:
            value = NEVER
        value += params.logit_bias.get(token_id, 0.0)
        if token_id in one.token_ids:
            value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        count = answer.count(token_id)
        value -= params.frequency_penalty * count + (params.presence_penalty if count else 0.0)
        edited_row.append(value)
    return edited_row


TOKEN = st.integers(0, 7)
TOKENS = st.lists(TOKEN, max_size=8).map(tuple)


@st.composite
def any_request(draw: st.DrawFn) -> Request:
    return request(
        prompt=draw(st.lists(TOKEN, min_size=1, max_size=8).map(tuple)),
        answer=draw(TOKENS),
        bad_words=draw(st.lists(st.lists(TOKEN, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple)),
        ends=draw(st.frozensets(TOKEN, max_size=2)),
        allowed_token_ids=draw(st.none() | st.lists(TOKEN, min_size=1).map(tuple)),
        min_tokens=draw(st.integers(0, 6)),
        logit_bias=draw(st.dictionaries(TOKEN, st.sampled_from([-3.0, 0.5, 7.0]), max_size=3)),
        repetition_penalty=draw(st.sampled_from([1.0, 1.5, 0.5])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.25, -1.0])),
        presence_penalty=draw(st.sampled_from([0.0, 0.5])),
    )


@given(st.lists(any_request(), min_size=1, max_size=5), st.integers(0, 999))
@settings(max_examples=150, deadline=None)
def test_any_batch_is_edited_as_the_book_says(requests: list[Request], seed: int) -> None:
    logits = torch.randint(-8, 9, (len(requests), 8), generator=torch.Generator().manual_seed(seed)).float()
    rules, together = LogitRules(), logits.clone()
    rules.apply(together, requests)
    expected = [by_the_book(row, one) for row, one in zip(logits.tolist(), requests, strict=True)]
    assert torch.allclose(together, torch.tensor(expected), atol=1e-5)
    for one in requests:  # the next step, with what the rules kept of this one
        one.token_ids.append(seed % 8)
    again = logits.clone()
    rules.apply(again, requests)
    expected = [by_the_book(row, one) for row, one in zip(logits.tolist(), requests, strict=True)]
    assert torch.allclose(again, torch.tensor(expected), atol=1e-5)
