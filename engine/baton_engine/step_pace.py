"""How much of a prompt a step may compute while answers are being written. Owns the running estimate of what
decodes and prompt tokens cost; knows no queues, and no clock: it is told how long each step took.

Whoever reads a stream sees the longest step as a pause, whoever waits for a first token wants large steps. So

    nobody decodes     the whole token budget: the first token comes as soon as it can
    somebody decodes   what is likely to keep the step under max_step_seconds; or, where decodes alone take
                       more than half of that, as long as they take: prompts get half of the time at least

The estimates are averages over the last few steps, weighted by tokens: a short chunk says little about the
cost of a token, one slow step (a neighbour on the machine) is soon forgotten. What a token costs grows with
its context; successive chunks of one prompt are alike enough for the average to follow.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = 0.6
"""What a step leaves of the weight of the steps before it."""

CHUNK_UNIT = 16
"""Chunks are whole multiples of it, the attention kernel's block of query tokens, and at least one."""


@dataclass
class FadingRate:
    """Seconds a unit, over amounts that fade with each one that is added."""

    seconds: float = 0.0
    units: float = 0.0

    def add(self, seconds: float, units: float) -> None:
        self.seconds = self.seconds * MEMORY + seconds
        self.units = self.units * MEMORY + units

    @property
    def value(self) -> float | None:
        return self.seconds / self.units if self.units > 0 else None


class StepPace:
    def __init__(self, max_step_seconds: float) -> None:
        self.max_step_seconds = max_step_seconds
        self._decode_step = FadingRate()
        self._prompt_token = FadingRate()

    def prompt_tokens(self, budget: int, num_decodes: int) -> int:
        """At most `budget`: how many prompt tokens a step with that many decodes shall compute."""
        per_token = self._prompt_token.value
        if num_decodes == 0 or per_token is None:
            return budget
        decodes = self._decode_step.value or 0.0
        seconds = max(self.max_step_seconds - decodes, decodes)
        units = int(seconds / per_token / CHUNK_UNIT) if per_token > 0 else budget
        return min(budget, max(1, units) * CHUNK_UNIT)

    def learn(self, seconds: float, num_decodes: int, num_prompt_tokens: int) -> None:
        if num_prompt_tokens == 0:
            self._decode_step.add(seconds, 1)
            return
        decodes = (self._decode_step.value or 0.0) if num_decodes else 0.0
        self._prompt_token.add(max(0.0, seconds - decodes), num_prompt_tokens)
