"""The spellings of a text that the injection judge looks at beside the text itself.

Look-alike letters, hidden tag characters, spaced-out words, percent and HTML escapes, base64, hex. Bounded:
each step is linear, decoding goes two levels deep, and all spellings together have a limit.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from baton_common.text_normal import fold_confusables, hidden_tag_text, normal_form

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}[^%\s]{0,8}){3,}")
_SPACED = re.compile(r"(?:\b\w[ .\-_*]){5,}\w\b")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}[ ]?){16,}\b")
_LEET = str.maketrans("013457@$", "oieastas")
_LEET_WORD = re.compile(r"(?<![A-Za-z])[A-Za-z]*[013457@$][A-Za-z]+[\w@$]*")
_DEPTH = 2
_GROWTH = 12
"""All spellings together are at most so many times as long as the text (and 64 k more)."""


class Spelling(NamedTuple):
    how: str
    """`plain`, `look-alikes`, `base64`, …"""
    text: str


def spellings(text: str) -> Iterator[Spelling]:
    plain = normal_form(text)
    yield Spelling("plain", plain)
    left = _GROWTH * len(text) + 65536
    for spelling in _beside(text, plain, _DEPTH):
        left -= len(spelling.text)
        if left < 0:
            return
        yield spelling


def _beside(text: str, plain: str, depth: int) -> Iterator[Spelling]:
    if not text.isascii():
        folded = fold_confusables(plain)
        if folded != plain:
            yield Spelling("look-alikes", folded)
        if hidden := hidden_tag_text(text):
            yield Spelling("hidden characters", hidden)
    if (joined := _SPACED.sub(_join, plain)) != plain:
        yield Spelling("spaced letters", joined)
    if (spelled := _LEET_WORD.sub(lambda word: word[0].translate(_LEET), plain)) != plain:
        yield Spelling("digits for letters", spelled)
    if depth:
        yield from _decoded(plain, depth)


def _decoded(plain: str, depth: int) -> Iterator[Spelling]:
    found: list[Spelling] = []
    if _PERCENT.search(plain):
        found.append(Spelling("percent escapes", unquote(plain.replace("+", " "), errors="replace")))
    if "&#" in plain or "&lt;" in plain:
        found.append(Spelling("HTML escapes", html.unescape(plain)))
    if "\\u00" in plain or "\\x" in plain:
        found.append(Spelling("backslash escapes", _unescape(plain)))
    for how, pattern, decode in (("base64", _BASE64, _from_base64), ("hex", _HEX, _from_hex)):
        parts = [decoded for run in pattern.finditer(plain) if (decoded := decode(run[0]))]
        if parts:
            found.append(Spelling(how, "\n".join(parts)))
    for spelling in found:
        if spelling.text != plain:
            inner = normal_form(spelling.text)
            yield Spelling(spelling.how, inner)
            yield from _beside(spelling.text, inner, depth - 1)


def _join(run: re.Match[str]) -> str:
    return re.sub(r"[ .\-_*]", "", run[0])


def _unescape(text: str) -> str:
    return re.sub(r"\\u00([0-9a-fA-F]{2})|\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1] or m[2], 16)), text)


def _from_base64(run: str) -> str | None:
    body = run.rstrip("=").replace("-", "+").replace("_", "/")
    body = body[: len(body) - (len(body) % 4 == 1)]
    return _readable(base64.b64decode(body + "=" * (-len(body) % 4)))


def _from_hex(run: str) -> str | None:
    try:
        return _readable(binascii.unhexlify(run.replace(" ", "")))
    except binascii.Error:
        return None


def _readable(raw: bytes) -> str | None:
    """Decoded bytes if they are text; random ones hardly ever are."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    printable = sum(char.isprintable() or char.isspace() for char in text)
    return text if text and printable / len(text) > 0.95 else None
