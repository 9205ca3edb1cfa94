"""Are the tokens right: float32 beside the stored answers of transformers, bfloat16 beside float32, the
deterministic switch beside itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.engine_real.parity.five_ways import WAYS, Answer, answers_of
from tests.engine_real.parity.reference import Reference, Verdict, read_references

NUM_TOKENS = 64
BATCHES = (1, 7, 32)
LEAST_SHARE = 0.9  # of first tokens in bfloat16: rounding decides close calls only


class Finding(NamedTuple):
    what: str
    right: bool
    figures: str

    def __str__(self) -> str:
        return f"{'right' if self.right else 'WRONG':6} {self.what}: {self.figures}"


def check(folder: Path, device: str, num_prompts: int) -> list[Finding]:
    every = read_references()
    references = [one.cut(NUM_TOKENS) for one in every[:: len(every) // num_prompts][:num_prompts]]
    common: dict[str, Any] = {"device": device, "backend": "torch"}
    findings = [_float32(folder, references, way, common) for way in ("batched", "chunked", "preempted")]
    findings.append(_bfloat16(folder, references, common))
    if device == "cuda":
        findings.append(_graphs(folder, references, common))
    return [*findings, *_deterministic(folder, references, common)]


def _float32(folder: Path, references: Sequence[Reference], way: str, common: dict[str, Any]) -> Finding:
    answers = WAYS[way](folder, _prompts(references), NUM_TOKENS, dtype="float32", **common)
    verdict = Verdict.of([answer.token_ids for answer in answers], references)
    return Finding(
        f"float32, {way}, as transformers",
        not verdict.wrong,
        f"{len(verdict.equal)} of {len(references)} answers equal, {len(verdict.tied)} part at a near-tie, "
        f"{len(verdict.wrong)} wrong",
    )


def _bfloat16(folder: Path, references: Sequence[Reference], common: dict[str, Any]) -> Finding:
    answers = WAYS["batched"](folder, _prompts(references), NUM_TOKENS, dtype="bfloat16", **common)
    pairs = list(zip(answers, references, strict=True))
    whole = sum(answer.token_ids == one.answer for answer, one in pairs)
    first = sum(answer.token_ids[0] == one.answer[0] for answer, one in pairs)
    return Finding(
        "bfloat16 beside float32",
        first >= LEAST_SHARE * len(pairs),
        f"{first} first tokens and {whole} whole answers equal, of {len(pairs)}",
    )


def _graphs(folder: Path, references: Sequence[Reference], common: dict[str, Any]) -> Finding:
    """A recorded step runs the same kernels on the same shapes as one that is not."""
    on, off = (
        WAYS["batched"](
            folder, _prompts(references), NUM_TOKENS, dtype="bfloat16", cuda_graphs=graphs, **common
        )
        for graphs in (True, False)
    )
    equal = sum(one.token_ids == other.token_ids for one, other in zip(on, off, strict=True))
    return Finding("CUDA graphs on and off", equal == len(on), f"{equal} of {len(on)} answers equal")


def _deterministic(
    folder: Path, references: Sequence[Reference], common: dict[str, Any]
) -> Iterator[Finding]:
    """Tokens and log-probabilities, bit for bit, in batches of several sizes, later ones on a warm cache."""
    prompts = _prompts(references)[:32]
    for dtype in ("float32", "bfloat16"):
        ask = answers_of(folder, dtype=dtype, deterministic=True, **common)
        together = ask(prompts, NUM_TOKENS // 2)
        apart: list[Answer] = []
        for size in BATCHES:
            apart += ask(prompts[:size], NUM_TOKENS // 2)
        wanted = [answer for size in BATCHES for answer in together[:size]]
        equal = sum(one == other for one, other in zip(apart, wanted, strict=True))
        sizes = ", ".join(map(str, BATCHES))
        yield Finding(
            f"deterministic, {dtype}",
            equal == len(wanted),
            f"batches of {sizes} beside one of 32: {equal} of {len(wanted)} answers equal to the last bit",
        )


def _prompts(references: Sequence[Reference]) -> list[list[int]]:
    return [one.prompt for one in references]
