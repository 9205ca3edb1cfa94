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

from baton_engine.choosing import GREEDY, Chooser, Draw, choose
from baton_engine.deltas import TokenLogprobs
from baton_engine.logit_rules import LogitRules
from baton_engine.logprobs import RawLogprobs
from baton_engine.request import Request


@dataclass(frozen=True)
class SampledToken:
    """token_id is None when the row's logits hold no number to choose by: that request fails, alone.
    is_ruled_out: since its rules made every token impossible, not since the model gave no numbers."""

    token_id: int | None
    logprobs: TokenLogprobs | None = None
    is_ruled_out: bool = False


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits, the same for the same (seed, position) everywhere."""
    digest = hashlib.blake2b(
        struct.pack("<qQ", seed, position), digest_size=8, person=b"baton.sampler"
    ).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


class Sampler:
    """`choose` does rules 3 to 8: in torch (`choosing.py`), or in a kernel."""

    def __init__(self, choose: Chooser = choose) -> None:
        self._rules = LogitRules()
        self._choose = choose

    @torch.inference_mode()
    def sample(self, logits: Tensor, requests: Sequence[Request]) -> list[SampledToken]:
        """logits (len(requests), vocabulary) float32, which it overwrites → one token for each row."""
        if not requests:
            return []
        raw = RawLogprobs.of(logits, requests)
        self._rules.apply(logits, requests)
        ids = self._choose(logits, [_draw_of(request) for request in requests])
        logprobs = raw.of_tokens([token_id or 0 for token_id in ids])
        return [
            SampledToken(token_id, logprobs.get(row))
            if token_id is not None
            else SampledToken(None, is_ruled_out=_is_ruled_out(logits[row], requests[row]))
            for row, token_id in enumerate(ids)
        ]


def _is_ruled_out(row: Tensor, request: Request) -> bool:
    """What is no number stays none under the rules, which only add, scale and put minus infinity."""
    return request.sampling.edits_logits and bool(torch.isneginf(row).all())


def _draw_of(request: Request) -> Draw:
    sampling = request.sampling
    if sampling.greedy:
        return GREEDY
    point = uniform(request.seed, request.num_tokens)
    return Draw(sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, point)
