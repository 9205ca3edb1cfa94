"""Calls as Llama 3 writes them: the answer is `{"name": …, "parameters": {…}}`, several joined by `;`.

`<|python_tag|>` may stand in front; the streaming decoder shows it only where a model spells it out.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from baton_engine.text.tool_calls.call_output import CallOutput
from baton_engine.text.tool_calls.json_calls import JsonCalls, Mark
from baton_engine.text.tool_calls.reading import Reading, Source

_MARKS: Final = (Mark("<|python_tag|>", sure=True),)


def read_llama_json(source: Source, out: CallOutput, known: AbstractSet[str] | None) -> Reading[None]:
    return JsonCalls(source, out, known, _MARKS).answer()
