"""The filter of one tool call's arguments: JSON text in and out, judged as the words that it stands for.

In JSON a line break is `\\n` and any letter may be `\\u0061`, so what a person reads is not what is written.
Escapes are taken off before the filter and put back behind it; restored values are escaped like the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from baton_output_guardrails.deny import DenyRules
from baton_output_guardrails.stream_filter import StreamFilter

_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/"}
_FIRST_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_SECOND_HALF_BEGUN = re.compile(r"(\\(u([dD]([c-fC-F][0-9a-fA-F]{0,2})?)?)?)?")
_LONGEST_ESCAPE = len("\\ud83d\\ude00")


class Unescaper:
    """Takes escapes off the strings of JSON text that comes in pieces.

    Those of quotes and backslashes stay, so that strings keep their ends; and halves of surrogate pairs,
    which are no text.
    """

    def __init__(self) -> None:
        self._held = ""

    @property
    def num_held(self) -> int:
        return len(self._held)

    def push(self, text: str) -> str:
        return self._take(self._held + text, at_end=False)

    def flush(self) -> str:
        return self._take(self._held, at_end=True)

    def _take(self, text: str, *, at_end: bool) -> str:
        parts: list[str] = []
        place = 0
        while (found := text.find("\\", place)) >= 0:
            parts.append(text[place:found])
            size = _escape_size(text, found)
            if size is None and not at_end:
                self._held = text[found:]
                return "".join(parts)
            place = len(text) if size is None else found + size
            parts.append(_unescaped(text[found:place]))
        self._held = ""
        parts.append(text[place:])
        return "".join(parts)


def _escape_size(text: str, start: int) -> int | None:
    """How long the escape at `start` is; None: more must come before that is known."""
    rest = text[start : start + _LONGEST_ESCAPE]
    if len(rest) < 2:
        return None
    if rest[1] != "u":
        return 2
    if len(rest) < 6:
        return None
    if not _FIRST_HALF.fullmatch(rest[:6]) or not _SECOND_HALF_BEGUN.fullmatch(rest[6:]):
        return 6
    return None if len(rest) < _LONGEST_ESCAPE else _LONGEST_ESCAPE


def _unescaped(escape: str) -> str:
    if escape[1:2] != "u":
        return _LETTERS.get(escape[1:2], escape)
    try:
        text: str = json.loads(f'"{escape}"')
        text.encode()
    except ValueError:
        return escape
    return "\\" + text if text in ('"', "\\") else text


class Escaper:
    """Puts back what may not stand in a string as it is. Outside strings it is white space and stays."""

    def __init__(self) -> None:
        self._in_string = False
        self._behind_backslash = False

    def push(self, text: str) -> str:
        return "".join(map(self._escape, text))

    def _escape(self, char: str) -> str:
        if self._behind_backslash:
            self._behind_backslash = False
        elif char == '"':
            self._in_string = not self._in_string
        elif char == "\\":
            self._behind_backslash = True
        elif char < " " and self._in_string:
            return json.dumps(char)[1:-1]
        return char


class ArgumentFilter:
    """However the text is cut, the same text comes out."""

    def __init__(self, values: Mapping[str, str], rules: DenyRules, *, monitor: bool = False) -> None:
        self._text = StreamFilter(in_json(values), rules, monitor=monitor)
        self._unescaper = Unescaper()
        self._escaper = Escaper()

    @property
    def filter(self) -> StreamFilter:
        return self._text

    @property
    def num_fed(self) -> int:
        return self._text.num_fed + self._unescaper.num_held

    def push(self, text: str) -> str:
        return self._escaper.push(self._text.push(self._unescaper.push(text)))

    def flush(self) -> str:
        return self._escaper.push(self._text.push(self._unescaper.flush()) + self._text.flush())


def in_json(values: Mapping[str, str]) -> dict[str, str]:
    """The values as they stand in a JSON string, its escapes taken off."""
    return {
        name: Unescaper().push(json.dumps(value, ensure_ascii=False)[1:-1]) for name, value in values.items()
    }
