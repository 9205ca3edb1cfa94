"""Log-probabilities as the model gave them, for reporting. Knows nothing of how tokens are chosen."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from baton_engine.deltas import TokenLogprobs
from baton_engine.request import Request
from baton_engine.scheduler import StepPlan

SCORED_ROWS = 64  # a log-softmax of a whole chunk over a large vocabulary would be hundreds of MiB


class RawLogprobs:
    """A step's log-softmax, of the rows whose requests ask for it, taken before anything edits the logits."""

    def __init__(self, logprobs: Tensor, top_of_row: dict[int, int]) -> None:
        self._logprobs = logprobs
        self._top_of_row = top_of_row

    @classmethod
    def of(cls, logits: Tensor, requests: Sequence[Request]) -> RawLogprobs:
        wanted = {
            row: request.sampling.logprobs
            for row, request in enumerate(requests)
            if request.sampling.logprobs is not None
        }
        return cls(logits[list(wanted)].log_softmax(-1) if wanted else logits[:0], wanted)

    def of_tokens(self, token_ids: Sequence[int]) -> dict[int, TokenLogprobs]:
        """By row; token_ids holds the chosen token of every row of the batch."""
        if not self._top_of_row:
            return {}
        chosen = [token_ids[row] for row in self._top_of_row]
        described = describe(self._logprobs, chosen, list(self._top_of_row.values()))
        return dict(zip(self._top_of_row, described, strict=True))


def describe(logprobs: Tensor, token_ids: Sequence[int], num_top: Sequence[int]) -> list[TokenLogprobs]:
    """One entry a row of logprobs (rows, vocabulary): its token's own logprob and its num_top best."""
    width = min(max(num_top), logprobs.shape[1])
    ids = torch.tensor(token_ids, dtype=torch.int64, device=logprobs.device)
    own: list[float] = logprobs.gather(1, ids[:, None])[:, 0].tolist()
    best = logprobs.topk(width, dim=-1)
    values: list[list[float]] = best.values.tolist()
    best_ids: list[list[int]] = best.indices.tolist()
    return [
        TokenLogprobs(token_id, own[row], tuple(zip(best_ids[row][:top], values[row][:top], strict=True)))
        for row, (token_id, top) in enumerate(zip(token_ids, num_top, strict=True))
    ]


@torch.inference_mode()
def score_prompts(logits: Tensor, plan: StepPlan) -> None:
    """Adds to each request's prompt_logprobs; logits has a row for each token of the chunks' `scored`."""
    targets = [(chunk.request, at) for chunk in plan.chunks for at in chunk.scored]
    assert len(targets) == logits.shape[0]
    for first in range(0, len(targets), SCORED_ROWS):
        part = targets[first : first + SCORED_ROWS]
        described = describe(
            logits[first : first + SCORED_ROWS].log_softmax(-1),
            [request.token_ids[at] for request, at in part],
            [request.sampling.prompt_logprobs or 0 for request, _ in part],
        )
        for (request, at), entry in zip(part, described, strict=True):
            assert at == len(request.prompt_logprobs), "prompt tokens are scored in order, each once"
            request.prompt_logprobs.append(entry)
