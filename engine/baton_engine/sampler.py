"""From logits to token ids, for the whole batch at once. Knows no text, no queues and no model.

The order is fixed, and part of what we promise:

    1  logprobs         taken from the model's own logits, for requests that ask for them
    2  logit rules      allowed ids → bad words → min tokens, bias → penalties: see `logit_rules.py`
    3  temperature 0    the row's exact argmax (the lowest id of equals), and nothing below applies
    4  temperature      (logit - row maximum) / temperature
    5  min-p            drop tokens less likely than min_p × the most likely one
    6  top-k            keep the k most likely (of equals the lower ids)
    7  top-p            keep the shortest run of most likely tokens whose sum reaches top_p, at least one
    8  draw             the token at u on the cumulative distribution, in order of token ids

u comes from a counter: a hash of (seed, position), position being the index of the new token in prompt +
answer. No generator has state, so neither the batch, nor its order, nor preemption can change a draw.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from baton_engine.logit_rules import LogitRules
from baton_engine.logprobs import RawLogprobs
from baton_engine.request import Request, TokenLogprobs

NUM_CANDIDATES = 512
WIDENING = 8
NO_TOKEN = -1


@dataclass(frozen=True)
class SampledToken:
    """token_id is None when the row's logits hold no number to choose by: that request fails, alone."""

    token_id: int | None
    logprobs: TokenLogprobs | None = None


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits, the same for the same (seed, position) everywhere."""
    digest = hashlib.blake2b(
        struct.pack("<qQ", seed, position), digest_size=8, person=b"baton.sampler"
    ).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


class Sampler:
    def __init__(self) -> None:
        self._rules = LogitRules()

    @torch.inference_mode()
    def sample(self, logits: Tensor, requests: Sequence[Request]) -> list[SampledToken]:
        """logits (len(requests), vocabulary) float32, which it overwrites → one token for each row."""
        if not requests:
            return []
        raw = RawLogprobs.of(logits, requests)
        self._rules.apply(logits, requests)
        best, token_ids = logits.max(dim=-1)
        drawn = [row for row, request in enumerate(requests) if not request.sampling.greedy]
        if drawn:
            chosen = _draw(logits[drawn], best[drawn], [requests[row] for row in drawn])
            token_ids[drawn] = chosen
        # In one tensor: where the model runs on a GPU, a step waits for it here, once.
        ids: list[int] = torch.where(torch.isfinite(best), token_ids, NO_TOKEN).tolist()
        logprobs = raw.of_tokens([max(token_id, 0) for token_id in ids])
        return [
            SampledToken(None) if token_id == NO_TOKEN else SampledToken(token_id, logprobs.get(row))
            for row, token_id in enumerate(ids)
        ]


def _draw(logits: Tensor, best: Tensor, requests: Sequence[Request]) -> Tensor:
    device = logits.device
    params = [request.sampling for request in requests]
    temperature = torch.tensor([p.temperature for p in params], dtype=torch.float32, device=device)
    # The maximum goes to 0 first: a tiny temperature then drives the others to -inf, never the best to inf.
    scaled = (logits - best[:, None]) / temperature[:, None]
    if any(p.min_p > 0 for p in params):
        floor = torch.tensor([p.min_p for p in params], dtype=torch.float32, device=device).log()
        scaled.masked_fill_(scaled < floor[:, None], -torch.inf)
    cut = [row for row, p in enumerate(params) if p.top_p < 1 or 0 < p.top_k < logits.shape[1]]
    if cut:
        scaled[cut] = _keep_most_likely(
            scaled[cut], [params[row].top_k for row in cut], [params[row].top_p for row in cut]
        )
    points = torch.tensor(
        [uniform(r.seed, r.num_tokens) for r in requests], dtype=torch.float64, device=device
    )
    return _invert(torch.softmax(scaled, dim=-1), points)


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
    mass = (values - torch.logsumexp(scaled, dim=-1, keepdim=True)).double().exp() * within_k
    share = torch.tensor(top_p, dtype=torch.float64, device=scaled.device)[:, None]
    # After top-k the distribution is renormalised: top-p is a share of what top-k left.
    goal = share * torch.where(limit < vocab_size, mass.sum(-1, keepdim=True), 1.0)
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


def _invert(probabilities: Tensor, points: Tensor) -> Tensor:
    """The first id whose cumulative probability is over point × total (float64: no share is rounded off)."""
    cumulative = probabilities.double().cumsum(-1)
    targets = points[:, None] * cumulative[:, -1:]
    # right=True: an id of probability 0 has an empty interval and can't be hit.
    ids = torch.searchsorted(cumulative, targets, right=True)[:, 0]
    return ids.clamp_(max=probabilities.shape[1] - 1)
