"""What of a find can be the name of a person: marks of code are cut off, and words of code let through. Pure.

A model trained on newspapers takes `Maria[12`, `jenkins import Jenkins` or `docker run -it` for persons. A
name that is let through is worse than a word that is masked for nothing (the answer has it again), so a word
goes through only where its neighbours make it code or a program, and nothing in the text makes it a person.
There is no list of programs: Jenkins, Travis and Julia are persons as well. Knows no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

_GLUED = re.compile(r"(?<=\w)[^\w\s]++(?=\w)")
"""Marks between two words, with no blank beside."""
_OF_CODE = re.compile(r"[(){}\[\]=<>\"|;\\]")
_MARKS = re.compile(r"[(){}\[\]=<>|;\\`]+|::|(?<!\S)--?(?=\w)")
"""No name goes on across one of these."""
_AROUND = " \t\r\n.,:!?'\"*#$&/-–—+~_"
"""Not a part of a name at its ends."""
_WRITTEN_AS_A_NAME = re.compile(r"(?:[A-Z]['.])*(?:[A-Z][a-z]+(?:['-]?[A-Z][a-z]+)*|[A-Z]{4,}(?:-[A-Z]+)*)")
"""In ASCII: `Keller`, `O'Brien`, `J.Keller`, `JEAN-LUC`."""
_GLUE_BEFORE = re.compile(r"(?<=\w)[^\w\s]+$")
_VERSION = re.compile(r"(?<!\s)\s+v?\d[\d.]*$")
_ADDRESS = re.compile(r"\w://")
_IMPORT = re.compile(r"\s*(?:from\s+[\w.]+\s+import\s[\w*,() ]+|import\s+[\w.]+(?:\s+as\s+\w+)?);?\s*")
_SURELY_CODE = re.compile(r"::|\(\)|[={]|^[a-z]\w*[(\[]\w|[A-Z]_[A-Z]|\)\.|(?<!\S)--?\w")
"""In a find whose words are not even capitalised."""
_CONSTANT = re.compile(r"[A-Z]_[A-Z]")
_WINDOW = 120
"""Characters of the line that are looked at on each side."""
_MOST_PLACES = 50
"""Of one word that are looked at."""

_BESIDE: tuple[tuple[str, str], ...] = (
    # Declared: `class X {`, `struct X:`, `impl Display for X {`, `CREATE TABLE X (`
    (
        r"\b(?:class|struct|interface|enum|trait|impl|namespace)\s+[*&]?$",
        r"\s*[<{]|\(|\s*[:;]\s*$|\s*:.*\{|\s+(?:extends|implements)\b",
    ),
    (r"\b(?:extends|implements)\s+$", r"\s*[<{,;]|\("),
    (r"\bimpl\s+$", r"\s+for\b"),
    (r"\bimpl\b.{0,60}\sfor\s+$", r"\s*[<{]"),
    (r"\b(?:TABLE|VIEW|INDEX)\s+$", r"\s*\("),
    (r"\b(?:const|let|var|val|mut|auto|static|final)\s+[*&]?$", r"\s*(?:=|;\s*$|:.*=|(?:of|in)\s+\w+\s*\))"),
    (r"\b(?:function|def|func|fn)\s+[*&]?$", r"\s*[(<]"),
    (r"\bnew\s+$", r"[(<]"),
    (r"\bexport\s+default\s+$", r"\s*;"),
    # Called, or a part of it is: `X()`, `X("a")`, `X(id=1)`, `X(a.b)`, `X(int a) {`, `X.build()`, `X.y = 1`
    (
        r"",
        r"\((?:\)|[\"'{\[*&$]|\w+\s*=|\w+[.(\[]\w|[^()\n]{0,80}\w=\S|[^()\n]{0,80}\)\s*(?:\{|=>|[;:]\s*$))",
    ),
    (r"", r"(?:\.\w+)*\.[a-z_]\w*\s*(?:\(|=[^=])"),
    (r"", r"::\w"),
    (r"\w(?:::|->)$", r""),
    # Assigned what is built: `X = Y(`, `X = [`
    (r"^\s*$", r"\s*:?=\s*(?:await\s+|new\s+)?(?:[A-Za-z_][\w.]*)?[(\[{]"),
    # A type: `List<X>`, `x: X =` (but `Paid: X = 5`), `x: X | null`; an element: `<X />`, `<X a={1}>`
    (r"\b[A-Z]\w*<$", r"[>,]"),
    (
        r"(?<![\w-])[a-z_]\w*:\s*$",
        r"(?:\[\])?\s*(?:=(?!\s*[()DP](?!\w))\s*\S|\|\s*(?:null|None|undefined)\b)",
    ),
    (r"</?$", r"\s*/>|\s+\w+=[{\"]"),
    # Imported: `import X from`, `import {a, X}`
    (r"^\s*import\s+(?:[\w*]+,\s*|\{\s*)*$", r"\s*(?:$|,|\}|as\b|from\b|;)"),
    # A program: `install X`, `the X plugin` (but `can X build it`, `upgrade X to first class`), `X version 3`
    (r"(?i:\b(?:re|un)?install(?:ing)?)\s+$", r"(?!'|\s+[A-Z][a-z])"),
    (
        r"(?i:\b(?:the|an?|this|that|my|our|your|each|every))\s+`?$",
        r"`?\s(?:plugin|pipeline|cluster|broker|framework|library|module|API|build|database"
        r"|container|queue|node)s?\b",
    ),
    (r"", r"\s(?:v|version\s)\d"),
)
"""Before a word and behind it: here it is code, or a program."""
_IS_CODE = [(re.compile(before), re.compile(behind)) for before, behind in _BESIDE]
_SOMEBODY = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|Sir|Dear|Hi|Hello)\.?|[\"'])\s*$")
"""Before a word that is a person's name, or a value of code, whatever the rest of the text says."""
_COMMENT = re.compile(r"(?:^|\s)(?:#|//|/\*|--|\*)\s")

Place = tuple[int, int]


class Part(NamedTuple):
    start: int
    end: int
    text: str

    @property
    def is_one_word(self) -> bool:
        return not any(map(str.isspace, self.text))


def spread(text: str) -> str:
    """`text`, as long as before, with the words that code's marks glue together taken apart: `("` → `, `. A
    model's tokeniser would leave `User("Emma` one word."""
    return _GLUED.sub(_apart, text)


def _apart(marks: re.Match[str]) -> str:
    if not _OF_CODE.search(marks[0]):
        return marks[0]
    width = len(marks[0])
    return " " if width == 1 else "," + " " * (width - 1)


def persons(text: str, finds: Iterable[Place]) -> list[Place]:
    """What of `finds` in `text` may be the names of persons."""
    parts = [
        part
        for start, end in finds
        for part in _parts(text, start, end)
        if not (_is_glued_code(part, *_line(text, part)) or _is_import(part, *_line(text, part)))
    ]
    in_full = {word for part in parts if not part.is_one_word for word in part.text.split()}
    alone = {part.text for part in parts if part.is_one_word} - in_full
    code = {word for word in alone if _is_code(text, word)}
    return [(part.start, part.end) for part in parts if part.text not in code]


def _parts(text: str, start: int, end: int) -> Iterable[Part]:
    """Of one find, without marks of code."""
    find = text[start:end]
    is_code = _SURELY_CODE.search(find) is not None
    at = 0
    for mark in [*_MARKS.finditer(find), None]:
        piece = find[at : mark.start() if mark else len(find)]
        first = start + at + len(piece) - len(piece.lstrip(_AROUND))
        words = _VERSION.sub("", piece.strip(_AROUND))
        at = mark.end() if mark else len(find)
        if not any(map(str.isalpha, words)) or _CONSTANT.search(words) or _ADDRESS.search(words):
            continue
        if not (is_code and words == words.lower()):
            yield Part(first, first + len(words), words)


def _line(text: str, part: Part) -> tuple[str, str]:
    """Of the line in which it stands: what is before, and what is behind."""
    before = text[max(0, part.start - _WINDOW) : part.start].rpartition("\n")[2]
    return before, text[part.end : part.end + _WINDOW].partition("\n")[0]


def _is_import(part: Part, before: str, behind: str) -> bool:
    return _IMPORT.fullmatch(f"{before}{part.text}{behind}") is not None


def _is_glued_code(part: Part, before: str, behind: str) -> bool:
    """A word such as `max(` or `np` in `[np.nan`: glued to a mark of code, and not written as a name is."""
    if not part.text.isascii() or not part.is_one_word or _WRITTEN_AS_A_NAME.fullmatch(part.text):
        return False
    glue = _GLUE_BEFORE.search(before), _GLUED.match(f"{part.text[-1]}{behind}", 1)
    return any(marks and _OF_CODE.search(marks[0]) for marks in glue)


def _is_code(text: str, word: str) -> bool:
    """Somewhere in the text it is, and nowhere a person."""
    lines = [_line(text, part) for part in islice(_places(text, word), _MOST_PLACES)]
    return any(_reads_as_code(*line) for line in lines) and not any(_reads_as_name(*line) for line in lines)


def _places(text: str, word: str) -> Iterator[Part]:
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        beside = text[max(0, start - 1) : start] + text[end : end + 1]
        if not any(char.isalnum() or char == "_" for char in beside):
            yield Part(start, end, word)
        start = text.find(word, end)


def _reads_as_code(before: str, behind: str) -> bool:
    """The later half first: it fails at once where there is no code, and this is asked of every name."""
    if not any(later.match(behind) and earlier.search(before) for earlier, later in _IS_CODE):
        return False
    return not _COMMENT.search(before) and before.count('"') % 2 == 0


def _reads_as_name(before: str, behind: str) -> bool:
    return behind.startswith(("'s ", "’s ")) or _SOMEBODY.search(before) is not None
