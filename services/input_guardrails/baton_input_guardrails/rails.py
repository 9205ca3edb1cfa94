"""The rails that need no waiting: prompt injection, then topics. Pure.

What they find is either a refusal (the user's own words, a tool's definition), a quarantine (a document), a
withheld tool result, or, in monitor mode and for the model's own earlier answers, a note for the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from baton_common.phrases import PhraseAutomaton, symbols_of
from baton_contracts.prompt import Prompt
from baton_input_guardrails.injection import InjectionJudge, Verdict
from baton_input_guardrails.prompt_text import Passage, passages, without


@dataclass
class Screening:
    refusal: Verdict | None = None
    refused: str = ""
    """What was refused, for people: `messages[2] of the prompt`, `tools[0]`."""
    quarantined: dict[str, str] = field(default_factory=dict[str, str])
    """Chunk → reason."""
    withheld: set[int] = field(default_factory=set[int])
    """Messages whose tool result goes on without its text."""
    watched: list[str] = field(default_factory=list[str])
    """What was found and let through: `author:kind`."""

    def apply(self, prompt: Prompt) -> Prompt:
        return without(prompt, self.quarantined, frozenset(self.withheld))


def screen(prompt: Prompt, judge: InjectionJudge, *, monitor: bool = False) -> Screening:
    screening = Screening()
    for passage in passages(prompt):
        from_outside = passage.author in ("tool", "document")
        verdict = judge.judge(passage.text, "document" if from_outside else "client")
        if verdict is None:
            continue
        if monitor or not verdict.blocks or passage.author == "model":
            screening.watched.append(f"{passage.author}:{verdict.kind}")
        elif passage.author in ("user", "definition"):
            screening.refusal, screening.refused = verdict, _place(passage)
            return screening
        else:
            _set_aside(screening, passage, verdict)
    return screening


def _place(passage: Passage) -> str:
    if passage.author == "definition":
        return f"tools[{passage.message}]"
    return f"messages[{passage.message}] of the prompt"


def _set_aside(screening: Screening, passage: Passage, verdict: Verdict) -> None:
    if passage.author == "tool":
        screening.withheld.add(passage.message)
    elif passage.chunk_id is not None:
        read_as = "" if verdict.spelling == "plain" else f", read as {verdict.spelling}"
        screening.quarantined[passage.chunk_id] = f"prompt injection ({verdict.kind}{read_as})"


class Topics:
    """Phrases that users may not bring up."""

    def __init__(
        self, phrases: Sequence[tuple[str, bool]], mode: Literal["block", "monitor", "off"] = "block"
    ) -> None:
        """Pairs of phrase and whole_words. Raises ValueError for a phrase in which nothing could be found."""
        self.mode = mode
        self._automaton = PhraseAutomaton(
            [symbols_of(text, whole_words=whole_words) for text, whole_words in phrases]
        )
        self.active = bool(phrases) and mode != "off"

    def first_hit(self, prompt: Prompt) -> int | None:
        """Number of the first phrase in what users wrote."""
        for passage in passages(prompt):
            if passage.author == "user":
                hit = self._automaton.first_in(passage.text)
                if hit is not None:
                    return hit
        return None
