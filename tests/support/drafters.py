"""Guesses that a test decides on, in the place of an n-gram index or a draft model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from baton_engine.assembly import LoadedEngine
from baton_engine.request import Request
from baton_engine.speculation.drafting import Speculation, Wanted

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
