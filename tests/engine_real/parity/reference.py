"""The stored answers of transformers in float32, and what counts as the same answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REFERENCE_FILE = Path(__file__).parent / "reference.json"
TIE = 1e-4  # logits; what float32 sums over other orders differ by


@dataclass(frozen=True)
class Reference:
    """close_calls: place in the answer → the second token and the lead of the first."""

    prompt: list[int]
    answer: list[int]
    close_calls: dict[int, tuple[int, float]]

    def cut(self, num_tokens: int) -> Reference:
        return Reference(self.prompt, self.answer[:num_tokens], self.close_calls)

    def parts_at_a_tie(self, answer: Sequence[int]) -> bool:
        """True where `answer` takes the second token of a near-tie; all later tokens follow from that."""
        place = next(
            at for at, pair in enumerate(zip(answer, self.answer, strict=True)) if pair[0] != pair[1]
        )
        runner_up, lead = self.close_calls.get(place, (-1, 1.0))
        return answer[place] == runner_up and lead < TIE


@dataclass(frozen=True)
class Verdict:
    """Indices of the prompts whose answers are equal, part at a near-tie of the reference, or are wrong."""

    equal: list[int]
    tied: list[int]
    wrong: list[int]

    @classmethod
    def of(cls, answers: Sequence[Sequence[int]], references: Sequence[Reference]) -> Verdict:
        verdict = cls([], [], [])
        for index, (answer, reference) in enumerate(zip(answers, references, strict=True)):
            if list(answer) == reference.answer:
                verdict.equal.append(index)
            else:
                (verdict.tied if reference.parts_at_a_tie(answer) else verdict.wrong).append(index)
        return verdict


def read_references() -> list[Reference]:
    return [
        Reference(
            entry["prompt"],
            entry["answer"],
            {place: (runner_up, lead) for place, runner_up, lead in entry["close_calls"]},
        )
        for entry in json.loads(REFERENCE_FILE.read_text(encoding="utf-8"))
    ]
