"""Which model answers: a client that names one gets that one; `auto` goes by rules. Pure.

tools in the prompt                → large
documents in the prompt            → large
prompt too long for the small one  → large
long question                      → large
code or analysis                   → large
its wording is that of hard ones   → large (difficulty.py)
anything else                      → small
chosen one has no ready replica    → the other, if that has one
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from baton_common.catalog import Alias, Catalog
from baton_common.errors import RequestFailed
from baton_contracts.prompt import Prompt
from baton_llm_gateway.difficulty import Difficulty

CHARACTERS_A_TOKEN = 3
"""Low for English prose, so that a prompt judged to fit does fit."""

_CODE = re.compile(
    r"```|\bdef \w+\(|\bfunction \w*\(|^\s*(import|from|class) \w+|\bselect\b.+\bfrom\b|[{;]\s*$|=>"
    r"|\b(code|python|javascript|typescript|rust|java|sql|regex|bash|shell script|stack ?trace|traceback"
    r"|refactor|debug|unit tests?|compilers?)\b|\bc\+\+",
    re.IGNORECASE | re.MULTILINE,
)
_ANALYSIS = re.compile(
    r"\b(analy[sz]e|compare|contrast|prove|derive|evaluate|trade-?offs?|step by step|in detail|pros and cons"
    r"|root cause|explain why|design an?|summari[sz]e)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Choice:
    model: str
    rule: str
    reason: str
    other: str | None = None
    """The model to fall back to while nothing has been answered; only `auto` has one."""
    hard_probability: float | None = None
    """Where it was weighed."""


@dataclass(frozen=True)
class ModelChooser:
    catalog: Catalog
    is_ready: Callable[[str], bool]
    was_seen: Callable[[str], bool]
    long_question_characters: int
    difficulty: Difficulty | None
    """Of what the rules leave open. None: that is easy."""

    def choose(self, name: str, prompt: Prompt) -> Choice:
        """Raises RequestFailed (model_not_found) for a name that stands for nothing."""
        alias = self.catalog.aliases.get(name)
        if alias is None:
            if name in self.catalog.routes or self.was_seen(name):
                return Choice(name, "named", "the client named this model")
            message = f"The model {name!r} does not exist. GET /v1/models lists those that do."
            raise RequestFailed.because("model_not_found", message, stop="llm_gateway", param="model")
        if alias.large is None:
            return Choice(alias.small, "alias", f"{name} stands for {alias.small}")
        return self._by_rules(alias, alias.large, prompt)

    def _by_rules(self, alias: Alias, large: str, prompt: Prompt) -> Choice:
        probability: float | None = None
        found = _what_is_beside(prompt) or self._why_large(alias, prompt)
        rule, reason = found or ("easy", "a short question without documents")
        is_hard = found is not None
        if not is_hard and self.difficulty and (rating := self.difficulty.rate(_question(prompt))):
            probability, is_hard = rating.probability, rating.is_hard
            rule = "hard" if is_hard else "easy"
            reason = f"hard with probability {probability:.2f}: {rating.why}"
        model, other = (large, alias.small) if is_hard else (alias.small, large)
        if not self._answers(model) and self._answers(other):
            fallen = f"{reason}; {model} has no ready replica"
            return Choice(other, f"{rule}_fallback", fallen, model, probability)
        return Choice(model, rule, reason, other, probability)

    def _answers(self, model: str) -> bool:
        return self.is_ready(model) or not self.catalog.route(model).needs_replica

    def _why_large(self, alias: Alias, prompt: Prompt) -> tuple[str, str] | None:
        length = self.catalog.context_length(alias.small)
        size = prompt.num_characters
        if length and size > length * CHARACTERS_A_TOKEN:
            return "long_prompt", f"the prompt's {size} characters may not fit {alias.small}"
        question = _question(prompt)
        if len(question) > self.long_question_characters:
            return "long_question", f"the question has {len(question)} characters"
        if _CODE.search(question):
            return "code", "the question is about code"
        if _ANALYSIS.search(question):
            return "analysis", "the question asks for analysis"
        return None


def _what_is_beside(prompt: Prompt) -> tuple[str, str] | None:
    """Beside the question, that is: what asks more of a model than to talk."""
    if prompt.tools or any(message.tool_calls for message in prompt.messages):
        return "tools", "the prompt has tools"
    if prompt.has_documents:
        return "documents", "the prompt has documents"
    return None


def _question(prompt: Prompt) -> str:
    """What the user said last, without what was pasted in by others."""
    for message in reversed(prompt.messages):
        if message.role == "user":
            return "".join(part.text for part in message.parts if part.origin in ("client", "history"))
    return ""
