"""Which tokens one request has seen, and how often its answer has each. Knows no logits and no penalties.

The counts chase the tokens as the KV does: what was appended since the last look is counted at the
next one. A preempted request keeps its tokens and thus its counts; a resumed one counts all at first.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from baton_engine.request import Request


class TokenCounts:
    """with_prompt False leaves out tokens that only the prompt has."""

    def __init__(self, request: Request, with_prompt: bool) -> None:
        self._num_counted = 0 if with_prompt else request.num_prompt_tokens
        self._place_of: dict[int, int] = {}
        self._ids = np.empty(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.float32)

    def up_to_date(self, request: Request) -> tuple[Tensor, Tensor]:
        """Ids seen, each once, and their counts in the answer; views that hold until the next call."""
        for position in range(self._num_counted, request.num_tokens):
            self._count(request.token_ids[position], position >= request.num_prompt_tokens)
        self._num_counted = request.num_tokens
        size = len(self._place_of)
        return torch.from_numpy(self._ids[:size]), torch.from_numpy(self._counts[:size])

    def _count(self, token_id: int, in_answer: bool) -> None:
        place = self._place_of.setdefault(token_id, len(self._place_of))
        if place == len(self._ids):
            self._ids = np.concatenate((self._ids, np.empty_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[place] = token_id
        self._counts[place] += in_answer
