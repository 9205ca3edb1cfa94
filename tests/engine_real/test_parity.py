"""Real weights: greedy tokens equal those of transformers in float32, however they are computed.

The short form. `make parity` runs the long one: `test_parity_long.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from baton_engine import LLM, SamplingParams
from tests.engine_real.model_folder import require_model
from tests.engine_real.parity.five_ways import WAYS
from tests.engine_real.parity.reference import Reference, Verdict, read_references

NUM_TOKENS = 32
CHOSEN = (0, 9, 26, 31, 44, 53, 66, 77, 90, 92)  # short, long, code, other scripts
GREEDY = SamplingParams(max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True)

pytestmark = [pytest.mark.real_weights, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder() -> Path:
    return require_model()


@pytest.fixture(scope="module")
def references() -> list[Reference]:
    every = read_references()
    assert len(every) == 100
    return [every[index].cut(NUM_TOKENS) for index in CHOSEN]


@pytest.mark.parametrize("way", WAYS)
def test_float32_gives_the_tokens_of_transformers(
    way: str, folder: Path, references: list[Reference]
) -> None:
    answers = WAYS[way](folder, [one.prompt for one in references], NUM_TOKENS, dtype="float32")
    verdict = Verdict.of([answer.token_ids for answer in answers], references)
    assert verdict.wrong == []
    assert len(verdict.equal) >= len(references) - 1


def test_the_stored_answers_are_those_of_transformers(folder: Path, references: list[Reference]) -> None:
    """Each token is the top one of the reference after all before it: by induction the answers are equal."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for one in references[::3]:
        with torch.inference_mode():
            logits = model(torch.tensor([one.prompt + one.answer])).logits[0]
        assert one.answer == logits[len(one.prompt) - 1 : -1].argmax(-1).tolist()


def test_the_prompts_are_those_of_the_file(folder: Path, references: list[Reference]) -> None:
    tokenizer = LLM(folder, device="cpu", num_blocks=16).tokenizer
    assert tokenizer.decode(references[0].prompt) == "The capital of Portugal is"


def test_bfloat16_mostly_agrees(folder: Path, references: list[Reference]) -> None:
    """Rounding may change a close call, after which answers part; the first tokens are rarely close calls."""
    rough = LLM(folder, dtype="bfloat16", device="cpu", kv_memory_bytes=256 * 2**20)
    outputs = rough.generate([one.prompt for one in references], replace(GREEDY, max_tokens=1))
    agreeing = sum(
        output.token_ids[0] == one.answer[0] for output, one in zip(outputs, references, strict=True)
    )
    assert agreeing >= 8


def test_what_counts_as_the_same_answer() -> None:
    tied = Reference([1], [5, 6, 7], {1: (9, 5e-5), 2: (8, 5e-4)})
    answers = [[5, 6, 7], [5, 9, 1], [5, 6, 8], [5, 4, 7], [4, 6, 7]]
    verdict = Verdict.of(answers, [tied] * 5)
    assert (verdict.equal, verdict.tied, verdict.wrong) == ([0], [1], [2, 3, 4])
