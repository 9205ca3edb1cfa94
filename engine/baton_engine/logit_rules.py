"""What requests forbid, favour and punish among the tokens, for the whole batch at once. Owns the order:

    1  structure       every token that it does not allow next becomes impossible (`structured/mask.py`)
       allowed ids     every other token becomes impossible
    2  bad words       the token that would complete one becomes impossible
    3  min tokens      end and stop ids are impossible until the answer has min_tokens tokens; then logit bias
    4  repetition      a logit seen in prompt or answer: l / penalty where l > 0, l × penalty elsewhere
                       (Keskar et al., 2019)
    5  frequency, presence   l - frequency × count - presence × (count > 0), counts over the answer

Knows no probabilities and no text. A request without rules costs one look at a flag; a request's compiled
rules and its counts are made when it is first sampled, and go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from baton_engine.request import Request
from baton_engine.structured.mask import keep_allowed
from baton_engine.structured.matcher import Matcher, StructureBroken
from baton_engine.token_counts import TokenCounts


@dataclass(frozen=True)
class CompiledRules:
    """One request's rules as index tensors, so that a step only puts rows together.

    Holds no reference to the request: it is kept for as long as the request is, and no longer.
    """

    allowed: Tensor | None
    endings: Tensor
    bias_ids: Tensor
    bias: Tensor
    bad_words: dict[int | None, list[tuple[int, ...]]]
    counts: TokenCounts | None

    @classmethod
    def of(cls, request: Request) -> CompiledRules:
        sampling = request.sampling
        bad_words: dict[int | None, list[tuple[int, ...]]] = {}
        for word in request.bad_words:
            bad_words.setdefault(word[-2] if len(word) > 1 else None, []).append(word)
        with_prompt = sampling.repetition_penalty != 1
        return cls(
            allowed=None if sampling.allowed_token_ids is None else _ids(set(sampling.allowed_token_ids)),
            endings=_ids(request.stop_token_ids | request.end_token_ids),
            bias_ids=_ids(sampling.logit_bias),
            bias=torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32),
            bad_words=bad_words,
            counts=TokenCounts(request, with_prompt) if sampling.penalises else None,
        )


@dataclass(frozen=True)
class Row:
    index: int
    request: Request
    rules: CompiledRules


class LogitRules:
    def __init__(self) -> None:
        self._compiled: WeakKeyDictionary[Request, CompiledRules] = WeakKeyDictionary()

    def apply(self, logits: Tensor, requests: Sequence[Request]) -> None:
        """Edits logits (len(requests), vocabulary) in place."""
        rows = [
            Row(row, request, self._rules_of(request))
            for row, request in enumerate(requests)
            if request.sampling.edits_logits
        ]
        if not rows:
            return
        _keep_structured(logits, rows)
        _keep_allowed(logits, rows)
        _forbid(logits, rows, _completing_a_bad_word)
        _forbid(logits, rows, _ends_too_early)
        _add_bias(logits, rows)
        _penalise(logits, rows)

    def _rules_of(self, request: Request) -> CompiledRules:
        rules = self._compiled.get(request)
        if rules is None:
            rules = self._compiled[request] = CompiledRules.of(request)
        return rules


def _keep_structured(logits: Tensor, rows: Sequence[Row]) -> None:
    matchers: list[tuple[int, Matcher]] = []
    for row in rows:
        matcher = row.request.matcher
        if matcher is not None:
            with suppress(StructureBroken):  # the matcher keeps it, and its mask lets nothing through
                matcher.up_to_date(row.request)
            matchers.append((row.index, matcher))
    if matchers:
        keep_allowed(logits, matchers)


def _keep_allowed(logits: Tensor, rows: Sequence[Row]) -> None:
    parts = [(row.index, row.rules.allowed) for row in rows if row.rules.allowed is not None]
    if parts:
        places = _places(parts, logits.device)
        kept = logits[places]
        logits[[index for index, _ in parts]] = -torch.inf
        logits[places] = kept


def _forbid(logits: Tensor, rows: Sequence[Row], ids_of: Callable[[Row], Tensor | None]) -> None:
    parts = [(row.index, ids) for row in rows if (ids := ids_of(row)) is not None]
    if parts:
        logits[_places(parts, logits.device)] = -torch.inf


def _completing_a_bad_word(row: Row) -> Tensor | None:
    """The ids that, coming next, would end a bad word within the answer."""
    request, bad_words = row.request, row.rules.bad_words
    if not bad_words:
        return None
    words = list(bad_words.get(None, ()))
    if request.num_answer_tokens:
        words += bad_words.get(request.token_ids[-1], ())
    found = {word[-1] for word in words if request.answer_ends_with(word[:-1])}
    return _ids(found) if found else None


def _ends_too_early(row: Row) -> Tensor | None:
    early = row.request.num_answer_tokens < row.request.sampling.min_tokens
    return row.rules.endings if early and row.rules.endings.numel() else None


def _add_bias(logits: Tensor, rows: Sequence[Row]) -> None:
    biased = [row for row in rows if row.rules.bias_ids.numel()]
    if biased:
        places = _places([(row.index, row.rules.bias_ids) for row in biased], logits.device)
        logits[places] += torch.cat([row.rules.bias for row in biased]).to(logits.device)


def _penalise(logits: Tensor, rows: Sequence[Row]) -> None:
    counted = [(row, row.rules.counts.up_to_date(row.request)) for row in rows if row.rules.counts]
    if not counted:
        return
    places = _places([(row.index, ids) for row, (ids, _) in counted], logits.device)
    counts = torch.cat([counts for _, (_, counts) in counted])
    params = [row.request.sampling for row, _ in counted]
    repetition, frequency, presence = torch.tensor(
        [
            [p.repetition_penalty for p in params],
            [p.frequency_penalty for p in params],
            [p.presence_penalty for p in params],
        ]
    ).repeat_interleave(torch.tensor([ids.numel() for _, (ids, _) in counted]), dim=1)
    subtracted = (frequency * counts + presence * (counts > 0)).to(logits.device)
    repetition = repetition.to(logits.device)
    seen = logits[places]
    logits[places] = torch.where(seen > 0, seen / repetition, seen * repetition) - subtracted


def _places(parts: Sequence[tuple[int, Tensor]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Index of (row, id) pairs, from the ids of each row."""
    lengths = torch.tensor([ids.numel() for _, ids in parts])
    rows = torch.tensor([row for row, _ in parts]).repeat_interleave(lengths)
    return rows.to(device), torch.cat([ids for _, ids in parts]).to(device)


def _ids(token_ids: Iterable[int]) -> Tensor:
    return torch.tensor(list(token_ids), dtype=torch.int64)
