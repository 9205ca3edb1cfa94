"""Tool calls in an answer's text, found while it streams. A file for each format; one face.

`push` takes text as it comes, `finish` ends it; both give the events that are certain by then. The events do
not depend on how the text was split. Knows no tokens and no schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Protocol

from baton_engine.output_format import ToolCallFormat
from baton_engine.text.tool_calls.call_output import CallOutput, NewCallId
from baton_engine.text.tool_calls.events import CallArguments, CallEnd, CallEvent, CallStart, ContentText
from baton_engine.text.tool_calls.hermes import read_hermes
from baton_engine.text.tool_calls.llama_json import read_llama_json
from baton_engine.text.tool_calls.pythonic import read_pythonic
from baton_engine.text.tool_calls.reading import Driver, Reading, Source

__all__ = [
    "CallArguments",
    "CallEnd",
    "CallEvent",
    "CallStart",
    "ContentText",
    "NewCallId",
    "ToolCallParser",
    "tool_call_parser",
]

_Grammar = Callable[[Source, CallOutput, AbstractSet[str] | None], Reading[None]]

_GRAMMARS: dict[ToolCallFormat, _Grammar] = {
    "hermes": read_hermes,
    "llama3_json": read_llama_json,
    "pythonic": read_pythonic,
}


class ToolCallParser(Protocol):
    def push(self, text: str) -> list[CallEvent]: ...

    def finish(self) -> list[CallEvent]: ...


def tool_call_parser(
    written_as: ToolCallFormat, known: AbstractSet[str] | None, new_call_id: NewCallId
) -> ToolCallParser:
    """known: names of the functions that were offered; None: any name is taken for one."""
    out = CallOutput(new_call_id)
    return _GrammarParser(Driver(_GRAMMARS[written_as](Source(), out, known)), out)


class _GrammarParser:
    def __init__(self, driver: Driver, out: CallOutput) -> None:
        self._driver = driver
        self._out = out

    def push(self, text: str) -> list[CallEvent]:
        self._driver.push(text)
        return self._out.take()

    def finish(self) -> list[CallEvent]:
        self._driver.finish()
        return self._out.take()
