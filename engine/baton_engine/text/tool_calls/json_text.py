"""JSON, read character by character and handed on as it is accepted.

Stricter than a model, so that what comes out is JSON, in one point more lenient: a raw line break or tab in a
string, which models write, is taken and escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NoReturn

from baton_engine.text.tool_calls.reading import END, MAX_DEPTH, SPACE, Malformed, Reading, Source

Put = Callable[[str], None]

_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS: Final = ("true", "false", "null")
_ESCAPES: Final = '"\\/bfnrt'
_HEX: Final = "0123456789abcdefABCDEF"


def value(source: Source, first: str, put: Put, depth: int = 0) -> Reading[None]:
    """Reads the value that begins with `first`; `put` gets its text. Raises Malformed."""
    if depth > MAX_DEPTH:
        raise Malformed
    if first == '"':
        yield from string(source, put)
    elif first == "{":
        yield from _object(source, put, depth)
    elif first == "[":
        yield from _array(source, put, depth)
    elif first != END and first in "-0123456789":
        yield from _number(source, first, put)
    else:
        yield from _word(source, first, put)


def string(source: Source, put: Put) -> Reading[None]:
    """Behind its first quote."""
    put('"')
    while (char := (yield from source.next())) != '"':
        if char == END:
            raise Malformed
        if char == "\\":
            yield from _escape(source, put)
        elif char < " ":
            put(json.dumps(char)[1:-1])
        else:
            put(char)
    put('"')


def decoded(text: str) -> str:
    """The string that the JSON string `text` stands for. Raises Malformed for half of a surrogate pair."""
    value: str = json.loads(text)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Malformed from None
    return value


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _escape(source: Source, put: Put) -> Reading[None]:
    char = yield from source.next()
    if char == END or char not in _ESCAPES + "u":
        raise Malformed
    put("\\" + char)
    if char == "u":
        for _ in range(4):
            digit = yield from source.next()
            if digit == END or digit not in _HEX:
                raise Malformed
            put(digit)


def _object(source: Source, put: Put, depth: int) -> Reading[None]:
    put("{")
    char = yield from _solid(source, put)
    while char != "}":
        if char != '"':
            raise Malformed
        yield from string(source, put)
        if (yield from _solid(source, put)) != ":":
            raise Malformed
        put(":")
        yield from value(source, (yield from _solid(source, put)), put, depth + 1)
        char = yield from _after_member(source, put, "}")
    put("}")


def _array(source: Source, put: Put, depth: int) -> Reading[None]:
    put("[")
    char = yield from _solid(source, put)
    while char != "]":
        yield from value(source, char, put, depth + 1)
        char = yield from _after_member(source, put, "]")
    put("]")


def _after_member(source: Source, put: Put, end: str) -> Reading[str]:
    """The next member's first character, or `end`."""
    char = yield from _solid(source, put)
    if char == end:
        return char
    if char != ",":
        raise Malformed
    put(",")
    char = yield from _solid(source, put)
    if char == end:
        raise Malformed
    return char


def _solid(source: Source, put: Put) -> Reading[str]:
    while (char := (yield from source.next())) != END and char in SPACE:
        put(char)
    return char


def _number(source: Source, first: str, put: Put) -> Reading[None]:
    text, char = "", first
    while char != END and char in "0123456789+-.eE":
        put(char)
        text += char
        char = yield from source.next()
    if not _NUMBER.fullmatch(text):
        raise Malformed
    source.back_one()


def _word(source: Source, first: str, put: Put) -> Reading[None]:
    word = next((word for word in _WORDS if word[0] == first), None)
    if word is None:
        raise Malformed
    put(first)
    for expected in word[1:]:
        if (yield from source.next()) != expected:
            raise Malformed
        put(expected)
