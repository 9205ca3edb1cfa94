"""Rules 3 to 8 of `sampler.py` in torch operators: the reference, and what serves where there is no kernel.

Owns the face of what chooses tokens; knows no requests and no rules before the temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

NUM_CANDIDATES = 512
WIDENING = 8
NO_TOKEN = -1
LEAST_TEMPERATURE = 1e-30
"""A temperature that is no number over 0 in float32 would divide 0 by 0."""


@dataclass(frozen=True)
class Draw:
    """How one row's token is chosen. temperature 0 is the argmax, and nothing else of it applies.

    point is where in [0, 1) on the cumulative distribution.
    """

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    point: float = 0.0


GREEDY = Draw(0.0)


class Chooser(Protocol):
    def __call__(self, logits: Tensor, draws: Sequence[Draw]) -> list[int | None]:
        """logits (len(draws), vocabulary) float32 → a token for each row; None where the row's maximum is no
        finite number."""
        ...


def choose(logits: Tensor, draws: Sequence[Draw]) -> list[int | None]:
    best, token_ids = logits.max(dim=-1)
    drawn = [row for row, draw in enumerate(draws) if draw.temperature > 0]
    if drawn:
        token_ids[drawn] = _draw(logits[drawn], best[drawn], [draws[row] for row in drawn])
    # In one tensor: where the model runs on a GPU, a step waits for it here, once.
    ids: list[int] = torch.where(torch.isfinite(best), token_ids, NO_TOKEN).tolist()
    return [None if token_id == NO_TOKEN else token_id for token_id in ids]


def _draw(logits: Tensor, best: Tensor, draws: Sequence[Draw]) -> Tensor:
    device = logits.device
    temperature = torch.tensor([draw.temperature for draw in draws], dtype=torch.float32, device=device)
    temperature.clamp_(min=LEAST_TEMPERATURE)
    # The maximum goes to 0 first: a tiny temperature then drives the others to -inf, never the best to inf.
    scaled = (logits - best[:, None]) / temperature[:, None]
    if any(draw.min_p > 0 for draw in draws):
        floor = torch.tensor([draw.min_p for draw in draws], dtype=torch.float32, device=device).log()
        scaled.masked_fill_(scaled < floor[:, None], -torch.inf)
    cut = [row for row, draw in enumerate(draws) if draw.top_p < 1 or 0 < draw.top_k < logits.shape[1]]
    if cut:
        scaled[cut] = _keep_most_likely(
            scaled[cut], [draws[row].top_k for row in cut], [draws[row].top_p for row in cut]
        )
    points = torch.tensor([draw.point for draw in draws], dtype=torch.float64, device=device)
    return _invert(scaled.exp(), points)


def _keep_most_likely(scaled: Tensor, top_k: Sequence[int], top_p: Sequence[float]) -> Tensor:
    """Steps 6 and 7: all but the kept tokens become -inf.

    Sorting a large vocabulary costs more than the model's last layer, so the cut is first looked for among
    the NUM_CANDIDATES best tokens of each row; the rows for which that can't decide it try wider, alone.
    """
    vocab_size = scaled.shape[1]
    limits = [k if 0 < k < vocab_size else vocab_size for k in top_k]
    result = torch.full_like(scaled, -torch.inf)
    rows, width = list(range(scaled.shape[0])), min(NUM_CANDIDATES, vocab_size)
    while rows:
        part = scaled[rows]
        ids, kept, decided = _cut(part, width, [limits[row] for row in rows], [top_p[row] for row in rows])
        result[rows] = torch.full_like(part, -torch.inf).scatter_(1, ids, kept)
        rows = [row for row, done in zip(rows, decided, strict=True) if not done]
        width = width * WIDENING if width * WIDENING <= vocab_size // 4 else vocab_size
    return result


def _cut(
    scaled: Tensor, width: int, limits: Sequence[int], top_p: Sequence[float]
) -> tuple[Tensor, Tensor, list[bool]]:
    """The cut among the `width` best of each row: their ids; their values, -inf where not kept; and whether
    that is the row's cut, which it is not if a token outside them could be kept.
    """
    vocab_size = scaled.shape[1]
    values, ids = _sorted_candidates(scaled, width)
    ranks = torch.arange(width, device=scaled.device)
    limit = torch.tensor(limits, device=scaled.device)[:, None]
    within_k = ranks < limit
    mass = values.exp().double() * within_k
    share = torch.tensor(top_p, dtype=torch.float64, device=scaled.device)[:, None]
    whole = scaled.exp().sum(-1, keepdim=True, dtype=torch.float64)
    # After top-k the distribution is renormalised: top-p is a share of what top-k left.
    goal = share * torch.where(limit < vocab_size, mass.sum(-1, keepdim=True), whole)
    before = mass.cumsum(-1) - mass
    keep = within_k & ((before < goal) | (share >= 1) | (ranks == 0))
    lowest_kept = values.masked_fill(~keep, torch.inf).amin(-1)
    decided = ((limit <= width) | (limit == vocab_size))[:, 0] & (values[:, -1] < lowest_kept)
    return ids, values.masked_fill(~keep, -torch.inf), (decided | (width == vocab_size)).tolist()


def _sorted_candidates(scaled: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` best of each row, best first, lower ids first among equals."""
    if width == scaled.shape[1]:
        return torch.sort(scaled, dim=-1, descending=True, stable=True)
    _, ids = torch.topk(scaled, width, dim=-1)
    ids = ids.sort(dim=-1).values
    values, order = torch.sort(scaled.gather(1, ids), dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


def _invert(weights: Tensor, points: Tensor) -> Tensor:
    """The first id whose cumulative weight is over point × total (float64: no share is rounded off)."""
    cumulative = weights.double().cumsum(-1)
    targets = points[:, None] * cumulative[:, -1:]
    # right=True: an id of weight 0 has an empty interval and can't be hit.
    ids = torch.searchsorted(cumulative, targets, right=True)[:, 0]
    return ids.clamp_(max=weights.shape[1] - 1)
