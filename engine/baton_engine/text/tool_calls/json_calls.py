"""Calls written as JSON objects, `{"name": …, "arguments": {…}}`, with or without marks around them.

Owns how one such object is read: when a call is certain, how its arguments stream, and what becomes of text
that only looked like one. Which marks there are is each format's own.

A call is certain once its name is known and its arguments have begun; up to there, text that turns out
malformed is content. Behind that point nothing can be taken back: the call ends where it is, its arguments
cut, so that no client runs half a call by mistake, and the rest is content.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from baton_engine.text.stop_strings import StopMatcher
from baton_engine.text.tool_calls import json_text
from baton_engine.text.tool_calls.call_output import CallOutput
from baton_engine.text.tool_calls.reading import END, SPACE, Malformed, Reading, Source

_ARGUMENTS: Final = ("arguments", "parameters")
MAX_NAME: Final = 128


@dataclass(frozen=True)
class Mark:
    """What stands around calls. `sure`: nobody writes it for anything else, so that the call may name any
    function; without that, only an object that names a known one is a call."""

    opening: str
    closing: str = ""
    sure: bool = False
    label: str = ""
    """A word that may follow the opening mark."""


BARE: Final = Mark("")
"""An answer that begins with the object itself."""


class JsonCalls:
    """`known`: the functions that an unsure call may name; None: any."""

    def __init__(
        self, source: Source, out: CallOutput, known: AbstractSet[str] | None, marks: Sequence[Mark]
    ) -> None:
        self._source = source
        self._out = out
        self._known = known
        self._marks = {mark.opening: mark for mark in marks}

    def answer(self) -> Reading[None]:
        """The whole text, to its end."""
        mark = yield from self._at_start()
        while mark is not None:
            yield from self._block(mark)
            mark = yield from self._content()
        self._out.finish()

    def _at_start(self) -> Reading[Mark | None]:
        self._source.mark()
        first = yield from self._source.next_solid()
        self._source.back()
        return BARE if first == "{" else (yield from self._content())

    def _content(self) -> Reading[Mark | None]:
        """Content up to the next opening mark; None at the end of the text."""
        matcher = StopMatcher(list(self._marks))
        self._source.forget()
        while (char := (yield from self._source.next())) != END:
            scan = matcher.push(char)
            self._out.content(scan.text)
            if scan.stop is not None:
                return self._marks[scan.stop]
        self._out.content(matcher.flush())
        return None

    def _block(self, mark: Mark) -> Reading[None]:
        """What an opening mark begins: calls, one after another or in a list; or after all content."""
        source, calls_before = self._source, self._out.num_calls
        source.mark()
        try:
            yield from self._calls(mark)
        except Malformed:
            if self._out.num_calls == calls_before:
                self._out.content(mark.opening)
            source.back()

    def _calls(self, mark: Mark) -> Reading[None]:
        source = self._source
        first = yield from self._behind_label(mark)
        in_list = first == "["
        if in_list:
            first = yield from source.next_solid()
        if first != "{":
            raise Malformed
        while first == "{":
            yield from self._call(mark)
            source.mark()
            first = yield from source.next_solid(SPACE + ",;")
        if in_list and first == "]":
            source.mark()
            first = yield from source.next_solid()
        if first == END or not mark.closing.startswith(first):
            raise Malformed
        yield from source.literal(mark.closing[1:])

    def _behind_label(self, mark: Mark) -> Reading[str]:
        first = yield from self._source.next_solid()
        if mark.label and first == mark.label[0]:
            yield from self._source.literal(mark.label[1:])
            first = yield from self._source.next_solid()
        return first

    def _call(self, mark: Mark) -> Reading[None]:
        """The object behind its `{`, to its `}`."""
        name: str | None = None
        held: str | None = None
        started = False
        char = yield from self._source.next_solid()
        while char != "}":
            key, first = yield from self._key(char)
            if key == "name" and name is None:
                name = yield from self._name(first, mark)
            elif key in _ARGUMENTS and held is None and not started:
                if name is not None and first == "{":
                    started = True
                    self._out.start(name)
                    self._source.forget()
                    yield from json_text.value(self._source, first, self._out.arguments)
                    self._out.end()
                    self._source.mark()
                else:
                    held = yield from self._held_arguments(first)
            elif key == "name" or key in _ARGUMENTS or not (mark.sure or name):
                raise Malformed
            else:
                yield from json_text.value(self._source, first, _ignore)
            if name is not None and held is not None and not started:
                started = True
                self._start(name, held)
            char = yield from self._next_member()
        if name is None:
            raise Malformed
        if not started:
            self._start(name, "{}")

    def _start(self, name: str, arguments: str) -> None:
        self._out.start(name)
        self._out.arguments(arguments)
        self._out.end()
        self._source.mark()

    def _key(self, char: str) -> Reading[tuple[str, str]]:
        """A member's key and the first character of its value."""
        if char != '"':
            raise Malformed
        key = yield from self._string()
        if (yield from self._source.next_solid()) != ":":
            raise Malformed
        return key, (yield from self._source.next_solid())

    def _next_member(self) -> Reading[str]:
        char = yield from self._source.next_solid()
        if char == "}":
            return char
        if char != ",":
            raise Malformed
        char = yield from self._source.next_solid()
        if char == "}":
            raise Malformed
        return char

    def _name(self, first: str, mark: Mark) -> Reading[str]:
        if first != '"':
            raise Malformed
        name = yield from self._string()
        if not 0 < len(name) <= MAX_NAME:
            raise Malformed
        if not mark.sure and self._known is not None and name not in self._known:
            raise Malformed
        return name

    def _held_arguments(self, first: str) -> Reading[str]:
        """Arguments that can't stream: they come before the name, or as a string that holds the object."""
        if first not in ("{", '"', "n"):
            raise Malformed
        parts: list[str] = []
        yield from json_text.value(self._source, first, parts.append)
        text = "".join(parts)
        if first == "n":
            return "{}"
        if first == '"':
            text = json_text.decoded(text)
            if not json_text.is_object(text):
                raise Malformed
        return text

    def _string(self) -> Reading[str]:
        parts: list[str] = []
        yield from json_text.string(self._source, parts.append)
        return json_text.decoded("".join(parts))


def _ignore(text: str) -> None:
    del text
