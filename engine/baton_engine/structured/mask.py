"""Structures applied to a step's logits, all constrained rows at once. Knows no requests and no grammars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from baton_engine.structured.matcher import Matcher

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_PENALTIES = torch.where(torch.from_numpy(_BITS).bool(), 0.0, -torch.inf)
"""What eight bits of a mask add to the logits of their eight tokens: nothing, or minus infinity."""


def keep_allowed(logits: Tensor, rows: Sequence[tuple[int, Matcher]]) -> None:
    """logits (requests, vocabulary), in place: tokens that a row's matcher does not allow become impossible.

    A row whose mask can't be computed has no possible token left: choosing from it fails that request alone.
    """
    vocab_size = logits.shape[1]
    masks = np.zeros((len(rows), -(-vocab_size // 32) * 4), dtype=np.uint8)  # the library writes 32-bit words
    for mask, (_, matcher) in zip(masks, rows, strict=True):
        matcher.fill(mask)
    table = _PENALTIES.to(logits.device)
    bytes_of_rows = torch.from_numpy(masks).to(logits.device, torch.int32)
    penalties = torch.nn.functional.embedding(bytes_of_rows, table).view(len(rows), -1)[:, :vocab_size]
    if len(rows) == logits.shape[0]:
        logits.add_(penalties)
    else:
        logits.index_add_(0, torch.tensor([row for row, _ in rows], device=logits.device), penalties)
