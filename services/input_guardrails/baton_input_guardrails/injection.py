"""The judge of prompt injection: one text in, a verdict out. Pure.

Rules are found over the whole text (RE2, linear), then weighed within windows, so that an attack in the
middle of a long text counts as much as a short one and weak signs far apart don't add up. Knows nothing of
messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import re2

from baton_input_guardrails import injection_rules as table
from baton_input_guardrails.injection_rules import Kind, Rule
from baton_input_guardrails.spellings import spellings

Origin = Literal["client", "document"]
Mode = Literal["block", "monitor"]

WINDOW_BYTES = 600
_CONTEXT_BYTES = 300
_FAINT = 0.3
"""Factor for what is quoted and talked about, or said of somebody else."""
_MAX_FINDS = 400
"""Of one rule in one text; more would only repeat it."""


class PatternRefused(ValueError):
    """A pattern that RE2 can't run in linear time, or can't read."""


@dataclass(frozen=True)
class Verdict:
    kind: Kind
    score: float
    spelling: str
    """How the text had to be read: `plain`, `base64`, …"""
    blocks: bool
    """False: found, but all rules that found it are in monitor mode."""


class _Find(NamedTuple):
    start: int
    name: str
    kind: Kind
    weight: float


def compile_pattern(pattern: str) -> Any:
    """Case-insensitive, multi-line RE2: no back-references, no look-around, always linear. Raises
    PatternRefused."""
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = 16 << 20
    try:
        return re2.compile(f"(?m){pattern}", options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternRefused(text) from None


class InjectionJudge:
    def __init__(
        self,
        modes: Mapping[Kind, Mode] | None = None,
        extra: Iterable[Rule] = (),
        threshold: float = 1.0,
    ) -> None:
        """`modes` of kinds that are not to block. Raises PatternRefused for a bad extra pattern."""
        self._modes: dict[Kind, Mode] = dict(modes or {})
        self._threshold = threshold
        self._rules = [(rule, compile_pattern(rule.pattern)) for rule in (*table.RULES, *extra)]
        self._hidden = compile_pattern(table.HIDDEN_SEGMENTS)
        self._order = tuple(map(compile_pattern, table.HIDDEN_ORDER))
        self._about = compile_pattern(table.ABOUT_INJECTION)
        self._quoted = compile_pattern(table.QUOTED)
        self._not_to_model = compile_pattern(table.NOT_TO_THE_MODEL)
        self._own_words = compile_pattern(table.OWN_WORDS)

    def judge(self, text: str, origin: Origin) -> Verdict | None:
        """The first verdict that blocks, else one that would have, else None."""
        watched: Verdict | None = None
        for how, spelling in spellings(text):
            verdict = self._weigh(sorted(self._finds(spelling.encode(), origin)), how)
            if verdict and verdict.blocks:
                return verdict
            watched = watched or verdict
        return watched

    def _finds(self, text: bytes, origin: Origin) -> Iterator[_Find]:
        for rule, pattern in self._rules:
            weight = rule.client if origin == "client" else rule.document
            for number, match in enumerate(pattern.finditer(text)):
                if number == _MAX_FINDS:
                    break
                factor = self._faintness(rule.kind, match, text)
                yield _Find(match.start(), rule.name, rule.kind, weight * factor)
        weight = table.HIDDEN_WEIGHTS[0 if origin == "client" else 1]
        for match in self._hidden.finditer(text):
            segment = next(group for group in match.groups() if group is not None)
            if all(pattern.search(segment) for pattern in self._order):
                yield _Find(match.start(), "hidden_order", "hidden_order", weight)

    def _faintness(self, kind: Kind, match: Any, text: bytes) -> float:
        start, end = match.span()
        if kind == "override":
            before = text[max(0, start - 60) : start]
            if self._not_to_model.search(before) or self._own_words.search(match.group()):
                return _FAINT
        around = text[max(0, start - _CONTEXT_BYTES) : end + _CONTEXT_BYTES]
        shift = max(0, start - _CONTEXT_BYTES)
        for quotation in self._quoted.finditer(around):
            first, last = quotation.start() + shift, quotation.end() + shift
            if first <= start and end <= last:
                outside = around[: quotation.start()] + b" " + around[quotation.end() :]
                return _FAINT if self._about.search(outside) else 1.0
        return 1.0

    def _weigh(self, finds: list[_Find], how: str) -> Verdict | None:
        """The strongest window; blocking rules only, if they are enough."""
        blocking = [find for find in finds if self._modes.get(find.kind, "block") == "block"]
        for chosen, blocks in ((blocking, True), (finds, False)):
            for index, first in enumerate(chosen):
                score, kind = _window_score(chosen, index, first.start + WINDOW_BYTES)
                if score >= self._threshold:
                    return Verdict(kind, round(score, 2), how, blocks)
        return None


def _window_score(finds: list[_Find], index: int, end: int) -> tuple[float, Kind]:
    """Sum over different rules, and the kind that weighs most."""
    best: dict[str, _Find] = {}
    for find in islice(finds, index, None):
        if find.start >= end:
            break
        if find.name not in best or best[find.name].weight < find.weight:
            best[find.name] = find
    return sum(find.weight for find in best.values()), max(best.values(), key=lambda find: find.weight).kind
