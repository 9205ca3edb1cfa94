"""How the model at hand is told of tools, how it writes calls, and whether it thinks aloud. Pure.

Read from its chat template, which was written for that model: one that shows tools, and asks for calls in a
form that we can read, is used as it is. Any other model is told in the words of `tool_prompting.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from baton_common.catalog_models import ToolFormat

_TOOLS = re.compile(r"\btools\b")
_EFFORT = re.compile(r"\b(enable_thinking|reasoning_effort)\b")
_OTHER_HERMES = "<function="
"""Calls as XML inside `<tool_call>`: not the JSON that we read."""


@dataclass(frozen=True)
class Dialect:
    """template_shows_tools False: the template knows no tools, or calls in a form of its own.
    takes_effort: how much the model thinks can be said to its template.
    """

    tool_format: ToolFormat = "hermes"
    template_shows_tools: bool = False
    thinks: bool = False
    takes_effort: bool = False


def dialect_of(template: str, stated: ToolFormat | None = None) -> Dialect:
    """`stated` by the operator or the catalog wins over what the template says."""
    found = next(_formats_in(template), None) if _TOOLS.search(template) else None
    shows = found is not None or (stated is not None and _TOOLS.search(template) is not None)
    thinks = "<think>" in template or "</think>" in template
    return Dialect(stated or found or "hermes", shows, thinks, _EFFORT.search(template) is not None)


def _formats_in(template: str) -> Iterator[ToolFormat]:
    if "<tool_call>" in template and _OTHER_HERMES not in template:
        yield "hermes"
    if re.search(r"\[func_name\d*\(", template):
        yield "pythonic"
    if "<|python_tag|>" in template or re.search(r'"parameters\\?": ', template):
        yield "llama3_json"
