"""Text through a tool-call parser, in any pieces, as one readable result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from baton_engine import ToolCallFormat
from baton_engine.text.tool_calls import CallArguments, CallEnd, CallStart, ContentText, tool_call_parser

FUNCTIONS = frozenset({"weather", "add"})


@dataclass
class Call:
    name: str
    arguments: str = ""
    is_whole: bool = False


@dataclass
class Answer:
    content: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    order: list[Any] = field(default_factory=list[Any])
    """What came in which order, neighbours of one kind as one."""


def read(
    written_as: ToolCallFormat,
    pieces: str | Sequence[str],
    known: Iterable[str] | None = FUNCTIONS,
) -> Answer:
    names = None if known is None else frozenset(known)
    parser = tool_call_parser(written_as, names, lambda index: f"id{index}")
    answer = Answer()
    for piece in [pieces] if isinstance(pieces, str) else pieces:
        for event in parser.push(piece):
            _take(answer, event)
    for event in parser.finish():
        _take(answer, event)
    assert parser.finish() == []
    return answer


def _take(answer: Answer, event: object) -> None:
    match event:
        case ContentText(text):
            answer.content += text
            kind: Any = "content"
        case CallStart(index, call_id, name):
            assert (index, call_id) == (len(answer.calls), f"id{index}")
            answer.calls.append(Call(name))
            kind = index
        case CallArguments(index, text):
            assert index == len(answer.calls) - 1, "arguments of a call that is not the last"
            assert not answer.calls[index].is_whole, "arguments behind the end"
            answer.calls[index].arguments += text
            kind = index
        case CallEnd(index):
            answer.calls[index].is_whole = True
            kind = index
        case _:
            raise AssertionError(event)
    if answer.order[-1:] != [kind]:
        answer.order.append(kind)
