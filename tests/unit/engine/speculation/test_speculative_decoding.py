"""With guesses, right or wrong, requests get what they get without: tokens, text, ends, logprobs, cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from baton_engine import NgramSpeculation, RequestDelta, SamplingParams
from baton_engine.request import Request
from tests.support.drafters import (
    PROMPTS,
    SEEDED,
    answers_of,
    greedy_and_seeded,
    guess_with,
    however_computed,
    knowing,
)
from tests.support.engine_driver import GREEDY, add, ask, drain, text, token_ids
from tests.support.tiny_model import EOS, tiny_engine


@greedy_and_seeded
@pytest.mark.parametrize("wrong_every", [0, 1, 2, 5])
@however_computed
def test_the_same_tokens_however_they_are_computed(
    changes: dict[str, Any], wrong_every: int, sampling: SamplingParams
) -> None:
    plain = answers_of(tiny_engine(), sampling)
    engine = tiny_engine(**changes)
    speculation = guess_with(engine, knowing(plain, wrong_every))
    assert answers_of(engine, sampling) == plain
    assert (speculation.stats().num_accepted_tokens == 0) == (wrong_every == 1)
    if "num_blocks" in changes:
        assert engine.core.stats().preemptions_total > 0


@greedy_and_seeded
def test_ngrams_change_nothing_but_the_number_of_steps(sampling: SamplingParams) -> None:
    long = replace(sampling, max_tokens=120)
    tokens, steps = [], []
    for speculation in (None, NgramSpeculation(num_tokens=5)):
        engine = tiny_engine(speculation=speculation)
        add(engine, ask("a", [1, 2, 3], long))
        tokens.append(token_ids(drain(engine)["a"]))
        steps.append(engine.core.stats().steps_total)
    assert tokens[0] == tokens[1]
    if sampling is GREEDY:  # a tiny random model soon goes round in circles
        assert steps[1] < 0.75 * steps[0]


def whole_answer(sampling: SamplingParams, prompt: Sequence[int], name: str = "a", **changes: Any) -> Any:
    engine = tiny_engine(**changes)
    add(engine, ask(name, prompt, sampling))
    return drain(engine)[name]


def with_guesses(sampling: SamplingParams, prompt: Sequence[int], wrong_every: int = 0) -> Any:
    """The answer's deltas, where all of it was guessed as it comes out if nothing stops it."""
    free = replace(sampling, stop=(), stop_token_ids=(), max_tokens=60, min_tokens=0, ignore_eos=True)
    known = token_ids(whole_answer(free, prompt))
    engine = tiny_engine()
    guess_with(engine, knowing({"a.0": known}, wrong_every))
    add(engine, ask("a", prompt, sampling))
    deltas = drain(engine)["a"]
    assert engine.core.stats().kv_blocks_held == 0
    return deltas


def end_of(deltas: Sequence[RequestDelta]) -> tuple[Any, ...]:
    last = deltas[-1]
    assert last.usage is not None
    return token_ids(deltas), text(deltas), last.finish_reason, last.stop_reason, last.usage


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_max_tokens_inside_a_guess(max_tokens: int) -> None:
    sampling = replace(GREEDY, max_tokens=max_tokens)
    assert end_of(with_guesses(sampling, [1, 2, 3])) == end_of(whole_answer(sampling, [1, 2, 3]))


@pytest.mark.parametrize("place", range(1, 10))
def test_a_stop_token_inside_a_guess(place: int) -> None:
    """Nothing behind it is sent, counted or kept, though it was computed."""
    stop_id = token_ids(whole_answer(GREEDY, [1, 2, 3]))[place]
    sampling = replace(GREEDY, stop_token_ids=(stop_id,))
    assert end_of(with_guesses(sampling, [1, 2, 3])) == end_of(whole_answer(sampling, [1, 2, 3]))


def test_a_stop_string_and_the_least_number_of_tokens() -> None:
    whole = text(whole_answer(GREEDY, [70]))
    for sampling in (
        replace(GREEDY, stop=(whole[4:6],)),
        replace(GREEDY, stop=(whole[0],), min_tokens=7),
        replace(GREEDY, ignore_eos=False, logit_bias={EOS: 9.0}, min_tokens=9),
    ):
        assert end_of(with_guesses(sampling, [70])) == end_of(whole_answer(sampling, [70]))


def test_one_delta_for_each_step_with_a_logprob_for_each_token() -> None:
    sampling = replace(GREEDY, logprobs=2)
    plain, guessed = whole_answer(sampling, [1, 2, 3]), with_guesses(sampling, [1, 2, 3])
    assert [len(delta.token_ids) for delta in guessed] == [1, 5, 7, 7, 4]
    for delta in guessed:
        assert [entry.token_id for entry in delta.logprobs] == list(delta.token_ids)
    ours = [entry for delta in guessed for entry in delta.logprobs]
    theirs = [entry for delta in plain for entry in delta.logprobs]
    assert [(one.token_id, [token_id for token_id, _ in one.top]) for one in ours] == [
        (one.token_id, [token_id for token_id, _ in one.top]) for one in theirs
    ]
    assert [one.logprob for one in ours] == pytest.approx([one.logprob for one in theirs], abs=1e-5)


def test_prompt_logprobs_come_once_and_whole() -> None:
    sampling = replace(GREEDY, prompt_logprobs=1)
    guessed = with_guesses(sampling, list(range(20)))
    assert [len(delta.prompt_logprobs or ()) for delta in guessed] == [20, 0, 0, 0, 0]


def test_a_prefill_beside_guesses_is_the_only_one_in_the_record() -> None:
    engine = tiny_engine(max_num_batched_tokens=16)
    add(engine, ask("free", [1, 2, 3], GREEDY))
    known = {"a.0": token_ids(drain(engine)["free"])}
    guess_with(engine, knowing(known))
    add(engine, ask("a", [1, 2, 3], GREEDY))
    last = drain(engine)["a"][-1]
    assert last.timings is not None
    assert [chunk.num_tokens for chunk in last.timings.prefill_chunks] == [3]


def test_n_answers_end_in_order_and_none_is_lost() -> None:
    """Answer 1 ends deep inside a guess, in the step in which the others end too."""
    four = SamplingParams(max_tokens=20, temperature=1.0, seed=7, ignore_eos=True, n=4)
    plain = whole_answer(four, list(range(42)))
    known = {f"a.{index}": token_ids([d for d in plain if d.index == index]) for index in range(4)}
    for wrong_every in (0, 3):
        engine = tiny_engine()
        guess_with(engine, knowing(known, wrong_every))
        add(engine, ask("a", list(range(42)), four))
        deltas = drain(engine)["a"]
        for index in range(4):
            assert token_ids([one for one in deltas if one.index == index]) == known[f"a.{index}"]
        assert [one.num_left for one in deltas if one.finish_reason] == [3, 2, 1, 0]
        assert deltas[-1].ends_request


def test_the_deltas_of_a_step_are_in_the_order_of_their_ends() -> None:
    """Answer 1 stops, answer 0 ends some tokens later in the same step: its delta is the last."""
    engine = tiny_engine()
    two = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, n=2, stop_token_ids=(33,))
    run = engine.core.runner.run

    def scripted(plan: Any) -> Any:
        logits = run(plan).clone()
        logits[:, 70] = 1e4
        for row, chunk in enumerate(plan.sampling):
            if chunk.request.index == 1 and chunk.request.num_answer_tokens == 1:
                logits[row, 33] = 2e4
        return logits

    engine.core.runner.run = scripted  # type: ignore[method-assign]
    add(engine, ask("a", [1, 2, 3], two))
    engine.core.step()
    engine.core.step()
    guess_with(engine, lambda request, n: [70] * n if request.index == 0 else [])
    ends = [(one.index, one.token_ids, one.finish_reason, one.num_left) for one in engine.core.step()]
    assert ends == [(1, (33,), "stop", 1), (0, (70,) * 4, "length", 0)]
    assert not engine.core.has_work


def test_cancel_and_preemption_forget_the_guesses() -> None:
    engine = tiny_engine()
    guess_with(engine, lambda request, n: [0] * n)
    request = add(engine, ask("a", [1, 2, 3], GREEDY))
    for _ in range(4):
        engine.core.step()
    report, _ = engine.core.cancel("a")
    assert report.blocks_freed == 1
    assert request.num_tokens < 3 + 24
    engine.core.check_idle()


def test_wrong_guesses_are_never_found_by_a_prefix() -> None:
    """After an answer with wrong guesses the cache holds what it holds without any."""
    found: list[set[bytes]] = []
    for guesses in (False, True):
        engine = tiny_engine(block_size=4, num_blocks=64)
        if guesses:
            known = {"a.0": token_ids(whole_answer(GREEDY, list(range(9))))}
            guess_with(engine, knowing(known, wrong_every=3))
        add(engine, ask("a", list(range(9)), GREEDY))
        answer = token_ids(drain(engine)["a"])
        found.append(set(engine.core.kv_cache.pool.findable()))
        add(engine, ask("b", [*range(9), *answer], GREEDY))
        follow_up = drain(engine)["b"]
        assert follow_up[-1].usage is not None
        assert follow_up[-1].usage.cached_tokens == 32
        assert token_ids(follow_up) == token_ids(whole_answer(GREEDY, [*range(9), *answer]))
    assert found[0] == found[1]


def test_guesses_leave_every_other_request_its_token() -> None:
    engine = tiny_engine(max_num_seqs=6, max_num_batched_tokens=8)
    guess_with(engine, lambda request, n: [0] * n)
    for index in range(6):
        add(engine, ask(f"r{index}", [index + 1], GREEDY))
    engine.core.step()
    for _ in range(10):
        assert {delta.request_id for delta in engine.core.step()} == {f"r{index}" for index in range(6)}
    drain(engine)


def test_a_request_alone_in_a_full_pool_is_not_preempted_for_a_guess() -> None:
    engine = tiny_engine(block_size=4, num_blocks=4)
    guess_with(engine, lambda request, n: [0] * n)
    add(engine, ask("a", [1, 2, 3, 4], SamplingParams(max_tokens=13, temperature=0, ignore_eos=True)))
    drain(engine)
    assert engine.core.stats().preemptions_total == 0
    assert engine.core.stats().speculation.num_drafts > 0


def test_a_guess_outside_the_answer_of_a_failing_request() -> None:
    """A row without numbers fails its request in the middle of a guess; the other goes on."""
    engine = tiny_engine()
    guess_with(engine, knowing({"bad.0": [70] * 30, "good.0": [70] * 30}))

    run = engine.core.runner.run

    def poisoned(plan: Any) -> Any:
        logits = run(plan).clone()
        logits[:, 70] = 1e4
        if len(plan.sampling) == 2 and plan.num_sampled_rows > 2:
            logits[2] = float("nan")  # the first guess of the first request
        return logits

    engine.core.runner.run = poisoned  # type: ignore[method-assign]
    for name in ("bad", "good"):
        add(engine, ask(name, [1, 2, 3], GREEDY))
    answers = drain(engine)
    assert answers["bad"][-1].error is not None
    assert answers["bad"][-1].error.code == "invalid_logits"
    assert token_ids(answers["bad"]) == [70, 70]
    assert token_ids(answers["good"]) == [70] * 24


def test_a_resumed_answer_goes_on_as_it_would_have() -> None:
    whole = token_ids(whole_answer(SEEDED, PROMPTS[1]))
    engine = tiny_engine()
    guess_with(engine, knowing({"a.0": whole}, wrong_every=5))
    add(engine, ask("a", PROMPTS[1], SEEDED, resume_token_ids=whole[:7]))
    assert token_ids(drain(engine)["a"]) == whole[7:]


def requests_state(request: Request) -> tuple[int, int]:
    return request.num_computed_tokens, len(request.block_ids)


def test_after_each_step_a_request_holds_what_it_would_hold_without_guesses() -> None:
    engine = tiny_engine(block_size=4)
    guess_with(engine, lambda request, n: [0] * n)
    request = add(engine, ask("a", [1, 2, 3], GREEDY))
    while engine.core.has_work:
        engine.core.step()
        if request.is_running:
            computed = request.num_tokens - 1
            assert requests_state(request) == (computed, -(-computed // 4))
