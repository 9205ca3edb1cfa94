"""Whether a line of a batch may start now: only where nobody waits and a seat would stay free for a person.

Owns that judgement, by the heartbeats of the replicas and the leases of the embedders, and who must step
aside when a person waits all the same. Knows nothing of what a line is.

A heartbeat is up to a quarter of a second old. So lines that this process has started since are counted as
if they took seats that the heartbeats still call free, and of each replica's seats an eighth, at least one,
is left free: a person who comes takes it at once. (A replica of one seat has none to spare: it is used when
idle, and given back when somebody waits.)
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from baton_contracts.heartbeats import REPLICA_INTERVAL_SECONDS, ReplicaHeartbeat

UNSEEN_SECONDS = 2.5 * REPLICA_INTERVAL_SECONDS
"""A line that started so recently may not be in any heartbeat yet."""
MAX_KV_USAGE = 0.8
LINES_ELSEWHERE = 4
"""At once, for models that no heartbeat tells of: another server's, or nobody's."""
EMBEDDINGS = "/v1/embeddings"

Names = Callable[[str], tuple[str, ...]]
"""The models that may answer to a name."""


def seats_for_batches(beats: Sequence[ReplicaHeartbeat]) -> int:
    """How many lines these replicas could take besides what they run. 0 if anybody waits at any of them."""
    if any(beat.num_waiting for beat in beats):
        return 0
    return sum(_spare(beat) for beat in beats if beat.kv_usage < MAX_KV_USAGE)


def _spare(beat: ReplicaHeartbeat) -> int:
    for_people = 0 if beat.max_running == 1 else max(1, beat.max_running // 8)
    return max(0, beat.max_running - beat.num_running - for_people)


@dataclass(eq=False)
class Ticket:
    """A line under way."""

    endpoint: str
    models: tuple[str, ...]
    started: float
    step_aside: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when somebody waits for what this line holds: it must end, and be run again later."""
    number: int = 0


class Room:
    def __init__(
        self,
        ready: Callable[[], list[ReplicaHeartbeat]],
        embedder_questions: Callable[[], int],
        names: Names,
        monotonic: Callable[[], float],
        max_lines: int,
    ) -> None:
        """`embedder_questions`: how many the embedders have before them, ours among them."""
        self._ready = ready
        self._embedder_questions = embedder_questions
        self._names = names
        self._monotonic = monotonic
        self._max_lines = max_lines
        self._tickets: list[Ticket] = []
        self._numbers = itertools.count(1)
        self._freed = asyncio.Event()
        self._waited_at_last_look: set[str] = set()

    async def enter(self, endpoint: str, model: str) -> Ticket:
        """Returns when a line for that model may start; `leave` must follow."""
        while (ticket := self._try(endpoint, model)) is None:
            self._freed.clear()
            try:
                async with asyncio.timeout(REPLICA_INTERVAL_SECONDS):
                    await self._freed.wait()
            except TimeoutError:
                continue
        return ticket

    def leave(self, ticket: Ticket) -> None:
        self._tickets.remove(ticket)
        self._freed.set()

    def _try(self, endpoint: str, model: str) -> Ticket | None:
        models = () if endpoint == EMBEDDINGS else self._names(model)
        if len(self._tickets) >= self._max_lines or not self._has_room(endpoint, models):
            return None
        ticket = Ticket(endpoint, models, self._monotonic(), number=next(self._numbers))
        self._tickets.append(ticket)
        return ticket

    def _has_room(self, endpoint: str, models: tuple[str, ...]) -> bool:
        ours = [ticket for ticket in self._tickets if ticket.models == models and ticket.endpoint == endpoint]
        if endpoint == EMBEDDINGS:
            return not ours and self._embedder_questions() == 0
        beats = [beat for beat in self._ready() if beat.model in models]
        if not beats:
            return len(ours) < LINES_ELSEWHERE
        now = self._monotonic()
        unseen = [
            ticket
            for ticket in self._tickets
            if set(ticket.models) & set(models) and now - ticket.started < UNSEEN_SECONDS
        ]
        return seats_for_batches(beats) > len(unseen)

    async def watch(self) -> None:
        """For ever: where somebody waits for two looks on end, the youngest line steps aside."""
        while True:
            self.look()
            await asyncio.sleep(REPLICA_INTERVAL_SECONDS)

    def look(self) -> None:
        waits = {beat.model for beat in self._ready() if beat.num_waiting}
        for model in waits & self._waited_at_last_look:
            ours = [
                ticket
                for ticket in self._tickets
                if model in ticket.models and not ticket.step_aside.is_set()
            ]
            if ours:
                max(ours, key=lambda ticket: ticket.number).step_aside.set()
        self._waited_at_last_look = waits
