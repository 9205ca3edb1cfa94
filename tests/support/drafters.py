"""Guesses that a test decides on, in the place of an n-gram index or a draft model; and the questions whose
answers every kind of guessing must leave as they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from baton_engine import SamplingParams
from baton_engine.assembly import LoadedEngine
from baton_engine.request import Request
from baton_engine.speculation.drafting import Speculation, Wanted
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids

SEEDED = SamplingParams(max_tokens=24, temperature=1.0, top_p=0.95, seed=11, ignore_eos=True)
PROMPTS = [list(range(1 + index, 20 + 7 * index)) for index in range(5)]

greedy_and_seeded = pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
however_computed = pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_num_batched_tokens": 8},
        {"max_num_seqs": 2},
        {"block_size": 4, "num_blocks": 24},
        {"enable_prefix_caching": False},
    ],
    ids=["batched", "chunked", "two seats", "preempted", "no prefix cache"],
)

Guess = Callable[[Request, int], Sequence[int]]


class ScriptedDrafter:
    """guess(request, num_tokens) → at most so many tokens."""

    def __init__(self, guess: Guess) -> None:
        self.guess = guess
        self.asked: list[tuple[str, int]] = []

    def draft(self, wanted: Sequence[Wanted], most: int, running: Sequence[Request]) -> list[Sequence[int]]:
        assert all(one in running for one, _ in wanted)
        self.asked += [(request.request_id, num_tokens) for request, num_tokens in wanted]
        return [self.guess(request, num_tokens) for request, num_tokens in wanted]

    def forget(self, request: Request) -> None:
        pass

    def check_idle(self) -> None:
        pass


def guess_with(engine: LoadedEngine, guess: Guess, num_tokens: int = 6, max_running: int = 8) -> Speculation:
    """The engine speculates with `guess` from now on."""
    engine.core.speculation = Speculation(ScriptedDrafter(guess), num_tokens, 1_000, max_running)
    return engine.core.speculation


def knowing(answers: dict[str, Sequence[int]], wrong_every: int = 0) -> Guess:
    """Guesses out of the known answers; the answer's n-th, 2n-th, … token wrongly, if wrong_every is n."""

    def guess(request: Request, num_tokens: int) -> list[int]:
        first = request.num_answer_tokens
        answer = answers.get(f"{request.request_id}.{request.index}", ())[first : first + num_tokens]
        places = range(first + 1, first + 1 + len(answer))
        return [
            (token_id + 1) % 256 if wrong_every and place % wrong_every == 0 else token_id
            for place, token_id in zip(places, answer, strict=True)
        ]

    return guess


def answers_of(engine: LoadedEngine, sampling: SamplingParams) -> dict[str, list[int]]:
    """The tokens of an answer to each of PROMPTS, all asked at once, by request and answer."""
    for index, prompt in enumerate(PROMPTS):
        add(engine, ask(f"r{index}", prompt, sampling))
    return {f"{name}.0": token_ids(deltas) for name, deltas in drain(engine).items()}
