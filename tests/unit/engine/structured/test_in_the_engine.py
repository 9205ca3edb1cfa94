"""Structures in the step loop: with the other rules, several answers, preemption, resuming, faults."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from baton_engine import (
    AsyncEngine,
    InvalidParameter,
    NgramSpeculation,
    RequestDelta,
    SamplingParams,
    StructuredOutput,
)
from baton_engine.request import Request
from baton_engine.structured.compiler import GrammarCompiler
from baton_engine.structured.matcher import Matcher
from tests.support.engine_driver import GREEDY, add, ask, drain, edit_logits, script_tokens, text, token_ids
from tests.support.tiny_model import EOS, tiny_config, tiny_engine, tiny_parts

DIGITS = StructuredOutput(regex="[0-9]{1,12}")


def sampling(structured: StructuredOutput = DIGITS, **more: Any) -> SamplingParams:
    return SamplingParams(structured=structured, **{"temperature": 0, "max_tokens": 24, **more})


def answer(asked: SamplingParams, token_for: Any = None, **engine_config: Any) -> list[RequestDelta]:
    engine = tiny_engine(**engine_config)
    if token_for is not None:
        script_tokens(engine, token_for)
    add(engine, ask("a", [5], asked))
    return drain(engine)["a"]


def test_the_best_allowed_token_is_chosen_and_the_end_ends() -> None:
    deltas = answer(sampling(), lambda n: EOS if n == 3 else ord("7"))
    assert text(deltas) == "777"
    assert token_ids(deltas) == [ord("7")] * 3 + [EOS]
    assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == ("stop", None)


def test_a_complete_structure_ends_the_answer_without_an_end_token() -> None:
    deltas = answer(sampling(), lambda n: ord("7"))
    assert token_ids(deltas) == [ord("7")] * 12
    assert deltas[-1].finish_reason == "stop"


def test_an_answer_that_is_complete_at_max_tokens_stopped() -> None:
    assert answer(sampling(max_tokens=12), lambda n: ord("7"))[-1].finish_reason == "stop"
    assert answer(sampling(max_tokens=11), lambda n: ord("7"))[-1].finish_reason == "length"


@pytest.mark.parametrize("seed", range(8))
def test_sampled_answers_follow_it_beside_free_ones(seed: int) -> None:
    engine = tiny_engine()
    structured = sampling(temperature=1.5, seed=seed)
    add(engine, ask("a", [5], structured))
    add(engine, ask("free", [5], SamplingParams(temperature=1.5, seed=seed, max_tokens=24)))
    add(engine, ask("b", [6], replace(structured, top_k=5, top_p=0.9, repetition_penalty=1.3)))
    answers = drain(engine)
    assert re.fullmatch("[0-9]{1,12}", text(answers["a"]))
    assert re.fullmatch("[0-9]{1,12}", text(answers["b"]))
    alone = tiny_engine()
    add(alone, ask("free", [5], SamplingParams(temperature=1.5, seed=seed, max_tokens=24)))
    assert token_ids(drain(alone)["free"]) == token_ids(answers["free"])


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"allowed_token_ids": [ord("3"), ord("x"), EOS]}, "3" * 12),
        ({"bad_words": ["7"], "logit_bias": {ord("4"): 50}}, "4" * 12),
        ({"logit_bias": {ord("x"): 100, ord("8"): 100}}, "8" * 12),
        ({"min_tokens": 6}, "7" * 12),
        ({"ignore_eos": True}, "7" * 12),
        ({"stop": ["777"]}, ""),
        ({"stop_token_ids": [ord("7")]}, ""),
    ],
)
def test_the_other_rules_choose_among_what_it_allows(rules: dict[str, Any], expected: str) -> None:
    engine = tiny_engine()

    def prefer(requests: Sequence[Request], logits: Tensor) -> None:
        logits.zero_()
        logits[:, ord("7")] = 10

    edit_logits(engine, prefer)
    add(engine, ask("a", [5], sampling(**rules)))
    assert text(drain(engine)["a"]) == expected


def test_min_tokens_keeps_the_end_away_as_long_as_something_else_is_allowed() -> None:
    deltas = answer(sampling(min_tokens=6), lambda n: EOS)
    assert len(token_ids(deltas)) == 7  # six digits, then the end
    structured = StructuredOutput(choice=["ab"])
    assert text(answer(sampling(structured, min_tokens=10))) == "ab"


def test_ignore_eos_does_not_write_past_the_end() -> None:
    deltas = answer(sampling(ignore_eos=True), lambda n: EOS if n >= 2 else ord("7"))
    assert token_ids(deltas) == [ord("7"), ord("7"), EOS]
    assert (text(deltas), deltas[-1].finish_reason) == ("77", "stop")


def test_rules_that_leave_no_token_fail_that_request_alone() -> None:
    engine = tiny_engine()
    add(engine, ask("bad", [5], sampling(allowed_token_ids=[ord("x")])))
    add(engine, ask("good", [5], sampling()))
    answers = drain(engine)
    error = answers["bad"][-1].error
    assert error is not None
    assert error.code == "structured_output_failed"
    assert "no token is left" in error.message
    assert answers["good"][-1].finish_reason == "stop" or text(answers["good"]).isdigit()
    assert engine.core.stats().kv_blocks_held == 0


def test_logits_that_are_no_numbers_are_not_the_structure_s_fault() -> None:
    engine = tiny_engine()

    def poison(requests: Sequence[Request], logits: Tensor) -> None:
        for row, request in enumerate(requests):
            if request.request_id == "bad" and request.num_answer_tokens == 2:
                logits[row] = torch.nan

    edit_logits(engine, poison)
    add(engine, ask("bad", [5], sampling(ignore_eos=True)))
    add(engine, ask("good", [6], sampling(ignore_eos=True)))
    answers = drain(engine)
    error = answers["bad"][-1].error
    assert error is not None
    assert (error.code, len(token_ids(answers["bad"]))) == ("invalid_logits", 2)
    assert text(answers["good"]).isdigit()


def test_a_mask_that_can_not_be_computed_fails_that_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine()
    bad = add(engine, ask("bad", [5], sampling()))
    add(engine, ask("good", [6], sampling()))
    fill = Matcher.fill

    class Broken:
        def unsafe_compute_mask_ptr(self, *_: int) -> None:
            raise OverflowError("mask broke")

    def fill_or_break(matcher: Matcher, allowed: Any) -> None:
        if matcher is bad.matcher and bad.num_answer_tokens == 2:
            matcher._at = Broken()  # type: ignore[assignment]
        fill(matcher, allowed)

    monkeypatch.setattr(Matcher, "fill", fill_or_break)
    answers = drain(engine)
    error = answers["bad"][-1].error
    assert error is not None
    assert (error.code, "mask broke" in error.message) == ("structured_output_failed", True)
    assert len(token_ids(answers["bad"])) == 2
    assert text(answers["good"]).isdigit()


def test_several_answers_have_a_place_each() -> None:
    engine = tiny_engine()
    structured = StructuredOutput(regex="[a-p]{3}-[0-9]{2,9}")
    add(engine, ask("n", [5], sampling(structured, n=4, temperature=2.0, seed=3, max_tokens=30)))
    by_index: dict[int, str] = {}
    for delta in drain(engine)["n"]:
        by_index[delta.index] = by_index.get(delta.index, "") + delta.text
    assert len(set(by_index.values())) == 4
    assert all(re.fullmatch("[a-p]{3}-[0-9]{2,9}", answer) for answer in by_index.values())


def test_preemption_changes_nothing() -> None:
    def answers(**config: Any) -> tuple[dict[str, list[int]], int]:
        engine = tiny_engine(**config)
        for number in range(3):
            asked = sampling(StructuredOutput(regex="[a-z]{40}"), temperature=1, seed=number, max_tokens=64)
            add(engine, ask(str(number), list(range(1, 30)), asked))
        drained = {name: token_ids(deltas) for name, deltas in drain(engine).items()}
        return drained, engine.core.stats().preemptions_total

    roomy, _ = answers()
    tight, preemptions = answers(num_blocks=10)
    assert preemptions > 0
    assert tight == roomy
    assert all(re.fullmatch("[a-z]{40}", bytes(ids).decode()) for ids in roomy.values())


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_speculation_changes_nothing(temperature: float) -> None:
    structured = StructuredOutput(regex="(abcd-){8}[a-z]{1,9}")

    def run(**config: Any) -> tuple[list[int], int]:
        engine = tiny_engine(**config)
        prompt = list(b"abcd-abcd-abcd-")
        add(engine, ask("a", prompt, sampling(structured, temperature=temperature, seed=2, max_tokens=60)))
        return token_ids(drain(engine)["a"]), engine.core.stats().steps_total

    plain, num_steps = run()
    speculated, fewer_steps = run(speculation=NgramSpeculation())
    assert speculated == plain
    assert bytes(plain).decode().startswith("abcd-" * 8)
    assert fewer_steps < num_steps - 20  # the guesses that the structure forces held


def test_a_resumed_answer_goes_on_in_its_structure() -> None:
    asked = sampling(StructuredOutput(regex="[a-z]{12}"), temperature=1, seed=5)
    whole = token_ids(answer(asked))
    for cut in (1, 5, 11):
        engine = tiny_engine()
        add(engine, ask("a", [5], asked, resume_token_ids=whole[:cut]))
        assert token_ids(drain(engine)["a"]) == whole[cut:]


def test_resumed_tokens_that_complete_the_structure_end_at_once() -> None:
    engine = tiny_engine()
    asked = sampling(StructuredOutput(choice=["ab"]))
    add(engine, ask("a", [5], asked, resume_token_ids=list(b"ab")))
    (last,) = drain(engine)["a"]
    assert (last.finish_reason, last.text) == ("stop", "")


def test_resumed_tokens_outside_the_structure_fail_that_request_alone() -> None:
    engine = tiny_engine()
    add(engine, ask("bad", [5], sampling(), resume_token_ids=list(b"12x")))
    add(engine, ask("good", [5], GREEDY))
    answers = drain(engine)
    error = answers["bad"][-1].error
    assert error is not None
    assert error.code == "structured_output_failed"
    assert answers["good"][-1].finish_reason == "length"


def test_logprobs_are_the_model_s_own() -> None:
    engine = tiny_engine()
    seen: list[Tensor] = []
    edit_logits(engine, lambda requests, logits: seen.append(torch.log_softmax(logits.double(), -1)[0]))
    add(engine, ask("a", [5], sampling(logprobs=0)))
    deltas = drain(engine)["a"]
    for delta, row in zip(deltas, seen, strict=True):
        (entry,) = delta.logprobs
        assert entry.logprob == pytest.approx(float(row[entry.token_id]), abs=1e-5)


def test_masks_of_some_rows_leave_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from baton_engine.structured.mask import keep_allowed

    class Even:
        def fill(self, allowed: Any) -> None:
            allowed.fill(0b01010101)

    logits = torch.arange(3 * 37, dtype=torch.float32).view(3, 37)
    before = logits.clone()
    keep_allowed(logits, [(2, Even()), (0, Even())])  # type: ignore[list-item]
    even = np.arange(37) % 2 == 0
    assert torch.equal(logits[1], before[1])
    for row in (0, 2):
        assert torch.equal(logits[row, even], before[row, even])
        assert torch.isneginf(logits[row, ~even]).all()


async def test_the_async_engine_prepares_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = AsyncEngine(tiny_config(), tiny_parts())
    await engine.start()
    try:
        asked = sampling(StructuredOutput(choice=["ja", "nein"]))
        grammar = await asyncio.wrap_future(engine.prepare(asked))
        with pytest.raises(InvalidParameter, match="unclosed group"):
            await asyncio.wrap_future(engine.prepare(sampling(StructuredOutput(regex="("))))
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        deltas: list[RequestDelta] = []

        def on_delta(delta: RequestDelta) -> None:
            deltas.append(delta)
            if delta.finish_reason is not None:
                loop.call_soon_threadsafe(done.set)

        monkeypatch.setattr(GrammarCompiler, "grammar", None)  # who brings one does not wait for another
        engine.submit(replace(ask("a", [5], asked), grammar=grammar), on_delta)
        await asyncio.wait_for(done.wait(), 30)
        assert text(deltas) in ("ja", "nein")
    finally:
        await engine.close()
