"""`make parity`: 100 prompts × 128 tokens on the real weights, five ways, in float32 and in bfloat16.

float32: the tokens of transformers. Where its own lead is under a near-tie's (reference.TIE) either token is
right, and the rest of that answer follows from the choice; how many those are is printed, and bounded.
bfloat16: the native kernels give the same bits in all five ways, so the same log-probabilities, exactly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_real.model_folder import require_model
from tests.engine_real.parity.five_ways import WAYS, Answer
from tests.engine_real.parity.reference import Reference, Verdict, read_references

NUM_TOKENS = 128
MOST_TIES = 5

pytestmark = [pytest.mark.real_weights, pytest.mark.soak, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def folder() -> Path:
    return require_model()


@pytest.fixture(scope="module")
def references() -> list[Reference]:
    references = read_references()
    assert [len(one.answer) for one in references] == [NUM_TOKENS] * 100
    return references


@pytest.mark.parametrize("way", WAYS)
def test_float32(way: str, folder: Path, references: list[Reference]) -> None:
    answers = WAYS[way](folder, [one.prompt for one in references], NUM_TOKENS, dtype="float32")
    verdict = Verdict.of([answer.token_ids for answer in answers], references)
    print(f"\nfloat32, {way}: {len(verdict.equal)} equal, near-ties at {verdict.tied}, wrong {verdict.wrong}")
    assert verdict.wrong == []
    assert len(verdict.tied) <= MOST_TIES


@pytest.fixture(scope="module")
def bfloat16_batched(folder: Path, references: list[Reference]) -> list[Answer]:
    return WAYS["batched"](folder, [one.prompt for one in references], NUM_TOKENS, dtype="bfloat16")


@pytest.mark.parametrize("way", [way for way in WAYS if way != "batched"])
def test_bfloat16(
    way: str, folder: Path, references: list[Reference], bfloat16_batched: list[Answer]
) -> None:
    answers = WAYS[way](folder, [one.prompt for one in references], NUM_TOKENS, dtype="bfloat16")
    parted = [index for index, answer in enumerate(answers) if answer != bfloat16_batched[index]]
    assert parted == []


def test_bfloat16_beside_float32(references: list[Reference], bfloat16_batched: list[Answer]) -> None:
    """Rounding parts answers at close calls, and everything after follows: most of the tokens stay."""
    equal = sum(
        answer.token_ids == one.answer for answer, one in zip(bfloat16_batched, references, strict=True)
    )
    first = sum(
        answer.token_ids[0] == one.answer[0] for answer, one in zip(bfloat16_batched, references, strict=True)
    )
    print(f"\nbfloat16 beside float32: {equal} of 100 whole answers, {first} of 100 first tokens equal")
    assert first >= 95
    assert equal >= 50
