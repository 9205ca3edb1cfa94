"""Who gets guesses, and how many. Owns each request's patience and the counts; knows no tensors.

A request whose guesses hold gets more of them, up to the configured number. One whose guesses fail gets
fewer; if several in a row failed wholly, it gets none for a while, each time for longer: on text that can't
be guessed the cost goes to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from baton_engine.request import Request
from baton_engine.scheduler import StepPlan

FIRST_LENGTH = 4
LONGEST_PAUSE = 32


class Wanted(NamedTuple):
    """At most num_tokens guesses for the request, which decodes: all its tokens but the last are computed."""

    request: Request
    num_tokens: int


class Drafter(Protocol):
    def draft(
        self, wanted: Sequence[Wanted], most: int, running: Sequence[Request]
    ) -> Sequence[Sequence[int]]:
        """Guesses for each wanted, in order, `most` in all; fewer or none where it has none. `running` are
        all that run.
        """
        ...

    def forget(self, request: Request) -> None:
        """Gives back what is held for the request; it may never have been seen."""
        ...

    def check_idle(self) -> None:
        """Raises AssertionError if anything is held though every request was forgotten."""
        ...


def share_out(lengths: Sequence[int], most: int) -> list[int]:
    """No more than `most` in all: whoever wants less than an even share leaves the rest to the others."""
    shares = [0] * len(lengths)
    for rank, place in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        shares[place] = min(lengths[place], most // (len(lengths) - rank))
        most -= shares[place]
    return shares


@dataclass(frozen=True)
class SpeculationStats:
    """Sums since the engine's start. num_drafts counts requests × steps that had guesses;
    num_accepted_tokens_per_pos[i] how often the guess i + 1 places behind the last token was right.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: tuple[int, ...] = ()

    @property
    def acceptance_rate(self) -> float:
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0


@dataclass
class Patience:
    """How many tokens are worth guessing for one request now."""

    most: int
    length: int
    failures: int = 0
    steps_to_pause: int = 0

    def next_length(self) -> int:
        if self.steps_to_pause:
            self.steps_to_pause -= 1
            return 0
        return self.length

    def learn(self, num_drafted: int, num_accepted: int) -> None:
        if num_accepted == num_drafted:
            self.length = min(self.most, 2 * self.length)
        else:
            self.length = min(self.length, num_accepted + 1)
        self.failures = 0 if num_accepted else self.failures + 1
        if self.failures > 1:
            self.steps_to_pause = min(LONGEST_PAUSE, 2 ** (self.failures - 1))


@dataclass
class Speculation:
    """drafter None: no request ever gets a guess."""

    drafter: Drafter | None = None
    num_tokens: int = 0
    max_step_tokens: int = 0
    max_running: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted: list[int] = field(default_factory=list[int])  # by position
    _patience: dict[Request, Patience] = field(default_factory=dict["Request", "Patience"])

    @property
    def active(self) -> bool:
        return self.drafter is not None

    def propose(self, running: Sequence[Request]) -> None:
        """Sets draft_token_ids of all running requests."""
        if self.drafter is None:
            return
        for request in running:
            request.draft_token_ids = ()
        if len(running) > self.max_running:
            return
        wanted = [Wanted(one, self._length_for(one)) for one in running if one.num_remaining_tokens == 1]
        wanted = [one for one in wanted if one.num_tokens > 0]
        drafts = self.drafter.draft(wanted, max(0, self.max_step_tokens - len(running)), running)
        for (request, _), draft in zip(wanted, drafts, strict=True):
            request.draft_token_ids = tuple(draft)

    def learn(self, plan: StepPlan) -> None:
        """After the step: how many of each chunk's guesses were right."""
        for chunk in plan.chunks:
            num_drafted = len(chunk.draft_token_ids)
            if num_drafted:
                num_accepted = max(0, chunk.request.num_tokens - chunk.own_end - 1)
                self._count(num_drafted, num_accepted)
                if chunk.request.is_running:
                    self._patience_of(chunk.request).learn(num_drafted, num_accepted)

    def forget(self, request: Request) -> None:
        if self.drafter is not None:
            self.drafter.forget(request)
            self._patience.pop(request, None)

    def check_idle(self) -> None:
        if self.drafter is not None:
            self.drafter.check_idle()

    def stats(self) -> SpeculationStats:
        return SpeculationStats(
            self.num_drafts, self.num_draft_tokens, sum(self.num_accepted), tuple(self.num_accepted)
        )

    def _length_for(self, request: Request) -> int:
        """One token comes without a guess, so a guess for the last one that may come would be of no use."""
        most = request.max_num_tokens - request.num_tokens - 1
        return min(self._patience_of(request).next_length(), most) if most > 0 else 0

    def _patience_of(self, request: Request) -> Patience:
        found = self._patience.get(request)
        if found is None:
            found = self._patience[request] = Patience(self.num_tokens, min(FIRST_LENGTH, self.num_tokens))
        return found

    def _count(self, num_drafted: int, num_accepted: int) -> None:
        self.num_drafts += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted += [0] * (num_drafted - len(self.num_accepted))
        for position in range(num_accepted):
            self.num_accepted[position] += 1
