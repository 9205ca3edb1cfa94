"""Which of the written answers are given: for each prompt the n of the highest mean logprob. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from baton_edge_api.answer_objects import AnswerParts


def best_of(answers: Sequence[AnswerParts], num_written: int, num_kept: int) -> list[int]:
    """Places of those to give, prompt after prompt, the best first; all in order where all are kept.

    `answers` has num_written for each prompt. One without a token stands last.
    """
    if num_kept >= num_written:
        return list(range(len(answers)))
    chosen: list[int] = []
    for start in range(0, len(answers), num_written):
        places = range(start, start + num_written)
        chosen += sorted(places, key=lambda place: answers[place].mean_logprob, reverse=True)[:num_kept]
    return chosen
