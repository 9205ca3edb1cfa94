"""Calls as Hermes and Qwen write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

Small models of these families write the same object as often in a ```json fence, in the `<tools>` of their
own prompt, or bare as the whole answer: there it is a call only if it names a function that was offered.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from baton_engine.text.tool_calls.call_output import CallOutput
from baton_engine.text.tool_calls.json_calls import JsonCalls, Mark
from baton_engine.text.tool_calls.reading import Reading, Source

_MARKS: Final = (
    Mark("<tool_call>", "</tool_call>", sure=True),
    Mark("<tools>", "</tools>"),
    Mark("```", "```", label="json"),
)


def read_hermes(source: Source, out: CallOutput, known: AbstractSet[str] | None) -> Reading[None]:
    return JsonCalls(source, out, known, _MARKS).answer()
