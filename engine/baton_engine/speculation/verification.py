"""Which logits rows are sampled when, and which guesses hold. Owns the order of the rows; knows no sampling.

A step has a row for each request's last token (depth 0), and one for each of its guesses (depth 1, 2, …):
row d tells what follows when guess d was right. Depth after depth, the rows of the requests that are still
right are sampled and their tokens appended, so that each choice sees all that stands before it: penalties,
counters, masks and stops work as they do without guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from torch import Tensor

from baton_engine.request import Request
from baton_engine.scheduler import Chunk, StepPlan


@dataclass
class RowsByDepth:
    """Collects places of rows; the order is that of depths, and in each that of the plan."""

    depths: list[list[int]] = field(default_factory=list[list[int]])

    def add(self, chunk: Chunk, last_row: int) -> None:
        """last_row: the place of the chunk's last token, which is its last guess if it has some."""
        num_drafts = len(chunk.draft_token_ids)
        self.depths += [[] for _ in range(num_drafts + 1 - len(self.depths))]
        for depth in range(num_drafts + 1):
            self.depths[depth].append(last_row - num_drafts + depth)

    def in_order(self) -> list[int]:
        return [row for rows in self.depths for row in rows]


def rows_by_depth(
    logits: Tensor, plan: StepPlan, accept: Callable[[Request], None]
) -> Iterator[tuple[Tensor, Sequence[Request]]]:
    """For each depth the rows to sample from and their requests; their tokens are appended before going on.

    accept(request) is called for each guess that held: its keys and values are right. logits are in the order
    of RowsByDepth. Always yields depth 0, even if no chunk of the plan samples.
    """
    walk = [(chunk, True) for chunk in plan.sampling]
    first = 0
    for depth in count():
        rows = logits[first : first + len(walk)]
        alive = [place for place, (_, is_right) in enumerate(walk) if is_right]
        yield rows if len(alive) == len(walk) else rows[alive], [walk[place][0].request for place in alive]
        first += len(walk)
        walk = [
            (chunk, is_right and _holds(chunk, depth))
            for chunk, is_right in walk
            if depth < len(chunk.draft_token_ids)
        ]
        accepted = [chunk.request for chunk, is_right in walk if is_right]
        if not accepted:
            return
        for request in accepted:
            accept(request)


def _holds(chunk: Chunk, depth: int) -> bool:
    """The token just chosen is the guess of this depth, and the answer goes on behind it."""
    request = chunk.request
    return request.is_running and request.token_ids[-1] == chunk.draft_token_ids[depth]
