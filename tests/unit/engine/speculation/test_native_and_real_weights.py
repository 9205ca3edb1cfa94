"""On the native kernels a row's result does not depend on what is computed with it: guesses change no bit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from baton_engine import LLM, DraftSpeculation, NgramSpeculation, SamplingParams, TokenLogprobs
from baton_engine.assembly import LoadedEngine
from baton_engine.speculation.drafting import Speculation
from tests.support.drafters import guess_with, knowing
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.native_model import native_checkpoint, usable_isas
from tests.support.tiny_model import tiny_engine

MODELS = Path(os.environ.get("BATON_HOME", Path.home() / ".baton")) / "models"
PROMPTS = [[1 + place % 250 for place in range(279)], list(range(5, 40)), [7, 8, 9]]
SAMPLED = replace(GREEDY, temperature=1.0, top_p=0.9, seed=4)

native = pytest.mark.skipif(not usable_isas(), reason="no compiler or no AVX2 here")


def native_engine(**changes: object) -> LoadedEngine:
    """With contexts on both sides of 256 tokens, where attention is cut."""
    checkpoint = native_checkpoint()
    return tiny_engine(checkpoint, dtype="bfloat16", backend="native", max_num_batched_tokens=512, **changes)


def run(
    engine: LoadedEngine, sampling: SamplingParams, prompts: list[list[int]] = PROMPTS
) -> dict[str, tuple[list[int], list[TokenLogprobs]]]:
    for index, prompt in enumerate(prompts):
        add(engine, ask(f"r{index}", prompt, replace(sampling, logprobs=3)))
    return {
        f"{name}.0": (token_ids(deltas), [entry for delta in deltas for entry in delta.logprobs])
        for name, deltas in drain(engine).items()
    }


@native
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_tokens_and_logprobs_to_the_last_bit(sampling: SamplingParams) -> None:
    plain = run(native_engine(), sampling)
    for wrong_every in (0, 1, 3):
        engine = native_engine()
        speculation = guess_with(
            engine, knowing({name: ids for name, (ids, _) in plain.items()}, wrong_every)
        )
        assert run(engine, sampling) == plain
        assert speculation.stats().num_drafts > 0


def test_torch_is_so_too_where_it_is_deterministic() -> None:
    short = replace(GREEDY, max_tokens=10)
    plain = run(tiny_engine(deterministic=True, num_blocks=96), short, PROMPTS[1:])
    engine = tiny_engine(deterministic=True, num_blocks=96)
    guess_with(engine, knowing({name: ids for name, (ids, _) in plain.items()}, wrong_every=3))
    assert run(engine, short, PROMPTS[1:]) == plain


@native
def test_a_native_draft_model() -> None:
    plain = run(native_engine(), GREEDY)
    engine = tiny_engine(
        native_checkpoint(),
        draft=native_checkpoint(),
        dtype="bfloat16",
        backend="native",
        max_num_batched_tokens=512,
        speculation=DraftSpeculation("draft"),
    )
    assert run(engine, GREEDY) == plain
    assert engine.core.stats().speculation.acceptance_rate == 1


@native
@pytest.mark.real_weights
@pytest.mark.skipif(not (MODELS / "smollm2-135m").is_dir(), reason="`baton models pull` has not fetched it")
def test_real_weights_greedy_and_sampled() -> None:
    """A text to be repeated, and one that is not: the same ids with n-grams, which hold often there."""
    line = "The harbour light turns twice, then waits; the keeper counts the boats."
    prompts = [f"{line} {line} {line}", "Rivers begin in the hills because"]
    sampling = [
        SamplingParams(max_tokens=48, temperature=0, ignore_eos=True),
        SamplingParams(max_tokens=48, temperature=0.8, top_p=0.9, seed=1, ignore_eos=True),
    ]
    llm = LLM(MODELS / "smollm2-135m", speculation=NgramSpeculation(), num_blocks=64, max_model_len=512)
    core = llm._engine.core  # one load for both ways
    answers: list[list[tuple[int, ...]]] = []
    for speculation in (Speculation(), core.speculation):
        core.speculation = speculation
        answers.append([one.token_ids for params in sampling for one in llm.generate(prompts, params)])
    assert answers[0] == answers[1]
    assert llm.stats().speculation.num_accepted_tokens > 15
