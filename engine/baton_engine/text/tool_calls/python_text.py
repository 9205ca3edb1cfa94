"""Python literals, read character by character and handed on as JSON."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable
from typing import Final

from baton_engine.text.tool_calls.reading import END, MAX_DEPTH, SPACE, Malformed, Reading, Source

Put = Callable[[str], None]

_WORDS: Final = {
    "True": "true",
    "False": "false",
    "None": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}
_NUMBER: Final = re.compile(r"[-+]?[0-9.][0-9a-fA-FxXoO_.+-]{0,400}")
_SIMPLE_ESCAPES: Final = dict(zip("ntrbfav\\'\"", "\n\t\r\b\f\a\v\\'\"", strict=True))
_HEX_ESCAPES: Final = {"x": 2, "u": 4, "U": 8}


def value(source: Source, first: str, put: Put, depth: int = 0) -> Reading[None]:
    """Reads the literal that begins with `first`. Raises Malformed for what JSON can't say.

    What is read and not yet put is marked, so that it can be put back: no caller has a mark of its own.
    """
    if depth > MAX_DEPTH or first == END:
        raise Malformed
    if first in "\"'":
        yield from string(source, first, put)
    elif first == "[":
        yield from _list(source, put, depth)
    elif first == "{":
        yield from _dict(source, put, depth)
    else:
        yield from _atom(source, first, put)


def string(source: Source, quote: str, put: Put) -> Reading[None]:
    """Behind its first quote."""
    put('"')
    while (char := (yield from source.next())) != quote:
        if char == END:
            raise Malformed
        if char == "\\":
            source.mark_last()
            yield from _escape(source, put)
            source.forget()
        else:
            put(_in_json(char))
    put('"')


def _escape(source: Source, put: Put) -> Reading[None]:
    char = yield from source.next()
    if char in _SIMPLE_ESCAPES:
        put(_in_json(_SIMPLE_ESCAPES[char]))
    elif char in _HEX_ESCAPES:
        put(_in_json((yield from _coded(source, _HEX_ESCAPES[char]))))
    elif char != END and char in "01234567":
        put(_in_json((yield from _octal(source, char))))
    elif char in (END, "N"):
        raise Malformed
    elif char != "\n":
        put("\\\\" + _in_json(char))


def _coded(source: Source, num_digits: int) -> Reading[str]:
    digits = ""
    for _ in range(num_digits):
        digit = yield from source.next()
        if digit == END or digit not in "0123456789abcdefABCDEF":
            raise Malformed
        digits += digit
    if int(digits, 16) > 0x10FFFF:
        raise Malformed
    return chr(int(digits, 16))


def _octal(source: Source, digits: str) -> Reading[str]:
    while len(digits) < 3:
        digit = yield from source.next()
        if digit == END or digit not in "01234567":
            source.back_one()
            break
        digits += digit
    return chr(int(digits, 8))


def _in_json(char: str) -> str:
    is_half = "\ud800" <= char <= "\udfff"
    return json.dumps(char, ensure_ascii=is_half)[1:-1]


def _list(source: Source, put: Put, depth: int) -> Reading[None]:
    put("[")
    separator = ""
    while (char := (yield from source.next_solid())) != "]":
        put(separator)
        yield from value(source, char, put, depth + 1)
        separator = ", "
        if (yield from _ends_member(source, "]")):
            break
    put("]")


def _dict(source: Source, put: Put, depth: int) -> Reading[None]:
    put("{")
    separator = ""
    while (char := (yield from source.next_solid())) != "}":
        if char not in ('"', "'"):
            raise Malformed
        put(separator)
        yield from string(source, char, put)
        if (yield from source.next_solid()) != ":":
            raise Malformed
        put(": ")
        yield from value(source, (yield from source.next_solid()), put, depth + 1)
        separator = ", "
        if (yield from _ends_member(source, "}")):
            break
    put("}")


def _ends_member(source: Source, end: str) -> Reading[bool]:
    """Reads the comma behind a member, or `end`."""
    char = yield from source.next_solid()
    if char not in (",", end):
        raise Malformed
    return char == end


def _atom(source: Source, first: str, put: Put) -> Reading[None]:
    source.mark_last()
    text, char = "", first
    while char != END and char not in SPACE + ",)]}:":
        text += char
        char = yield from source.next()
    if char == END:
        raise Malformed
    put(_WORDS[text] if text in _WORDS else _number(text))
    source.back_one()
    source.forget()


def _number(text: str) -> str:
    if not _NUMBER.fullmatch(text):
        raise Malformed
    try:
        number = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise Malformed from None
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise Malformed
    return json.dumps(number)
