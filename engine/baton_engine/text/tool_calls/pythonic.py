"""Calls written as a list of Python calls that is the answer's beginning: `[f(a=1), g(b="x")]`.

The arguments stream as the JSON object that they stand for. A call is certain with its first keyword; what
becomes of malformed text is as in `json_calls`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set as AbstractSet
from typing import Final

from baton_engine.text.tool_calls import python_text
from baton_engine.text.tool_calls.call_output import CallOutput
from baton_engine.text.tool_calls.json_calls import MAX_NAME
from baton_engine.text.tool_calls.reading import END, SPACE, Malformed, Reading, Source

_JOINS: Final = re.compile(r"[.-]")


def read_pythonic(source: Source, out: CallOutput, known: AbstractSet[str] | None) -> Reading[None]:
    source.mark()
    try:
        yield from _list(source, out, known)
    except Malformed:
        source.back()
    source.forget()
    while (char := (yield from source.next())) != END:
        out.content(char)
    out.finish()


def _list(source: Source, out: CallOutput, known: AbstractSet[str] | None) -> Reading[None]:
    if (yield from source.next_solid()) != "[":
        raise Malformed
    while True:
        name = yield from _function(source, known)
        yield from _arguments(source, out, name)
        out.end()
        source.mark()
        char = yield from source.next_solid()
        if char == "]":
            return
        if char != ",":
            raise Malformed


def _function(source: Source, known: AbstractSet[str] | None) -> Reading[str]:
    """A name and its `(`; text that can't become a known name is given up at once."""
    name, char = "", (yield from source.next_solid())
    while char != "(":
        name += char
        is_begun = known is None or any(one.startswith(name) for one in known)
        if char == END or not _is_name(name) or len(name) > MAX_NAME or not is_begun:
            raise Malformed
        char = yield from source.next()
    if not name or (known is not None and name not in known):
        raise Malformed
    return name


def _arguments(source: Source, out: CallOutput, function: str) -> Reading[None]:
    """Behind the `(`, to the `)`."""
    keys: set[str] = set()
    while (char := (yield from source.next_solid())) != ")":
        key = yield from _keyword(source, char)
        if key in keys:
            raise Malformed
        if not keys:
            out.start(function)
        source.forget()
        out.arguments(("{" if not keys else ", ") + json.dumps(key, ensure_ascii=False) + ": ")
        keys.add(key)
        yield from python_text.value(source, (yield from source.next_solid()), out.arguments)
        char = yield from source.next_solid()
        if char == ")":
            break
        source.mark_last()
        if char != ",":
            raise Malformed
    if not keys:
        out.start(function)
        out.arguments("{")
    out.arguments("}")


def _keyword(source: Source, char: str) -> Reading[str]:
    """A parameter's name and its `=`."""
    key = ""
    while char not in ("=", END, *SPACE):
        key += char
        if not key.isidentifier():
            raise Malformed
        char = yield from source.next()
    if char != END and char in SPACE:
        char = yield from source.next_solid()
    if char != "=" or not key:
        raise Malformed
    return key


def _is_name(text: str) -> bool:
    """An identifier, or several joined by dots or hyphens, or the beginning of that."""
    first, *others = _JOINS.split(text)
    return first.isidentifier() and all(not part or part.isidentifier() for part in others)
