"""A document's text to passages of about 800 characters, each with the path of headings it stands under.

Pure. A passage never crosses a heading, passages don't overlap, and their texts in order hold every paragraph
of the document. Its id is a hash of where it stands and what it says: the same passage is always the same id.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from baton_prompt_builder.stores.interface import StoredChunk

TARGET_CHARACTERS = 800
_LONGEST_HEADING = 200
"""Headings are stored, and told the model, with every passage below them: a longer one is a paragraph as
well, and only its beginning is the heading."""

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+([^ \t].*)$")
_FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`]*$)|~{3,})")
"""Three backticks with more of them behind on the same line are code within a line."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass
class Section:
    """The paragraphs between two headings."""

    path: tuple[str, ...]
    paragraphs: list[str] = field(default_factory=list[str])


def chunk_markdown(tenant_id: str, source: str, text: str) -> list[StoredChunk]:
    """The first heading of level 1 is the title; without one the source's name is."""
    return _chunks(tenant_id, source, list(_sections(text)))


def chunk_plain_text(tenant_id: str, source: str, text: str) -> list[StoredChunk]:
    """No headings: a line that begins with # is just a line. Lines may end in any way."""
    lines = "\n".join(text.splitlines())
    paragraphs = [part.strip() for part in re.split(r"\n[ \t]*\n", lines) if part.strip()]
    return _chunks(tenant_id, source, [Section((), paragraphs)])


def _chunks(tenant_id: str, source: str, sections: list[Section]) -> list[StoredChunk]:
    title = next((section.path[0] for section in sections if section.path and section.path[0]), source)
    found: dict[str, StoredChunk] = {}
    for section in sections:
        headings = tuple(part for part in section.path[1:] if part)
        if section.path and section.path[0] not in ("", title):
            headings = (section.path[0], *headings)
        for passage in pack(section.paragraphs, TARGET_CHARACTERS):
            chunk_id = passage_id(tenant_id, source, (title, *headings), passage)
            found[chunk_id] = StoredChunk(chunk_id, tenant_id, source, title, headings, passage)
    return list(found.values())


def passage_id(tenant_id: str, source: str, path: tuple[str, ...], text: str) -> str:
    """The first half of a SHA-256, as a UUID: what the store takes for an id."""
    digest = hashlib.sha256()
    for part in (tenant_id, source, *path, "", text):
        digest.update(f"{len(part)}:{part}".encode())
    return str(uuid.UUID(bytes=digest.digest()[:16]))


def _sections(text: str) -> Iterator[Section]:
    """Headings inside fenced code are code."""
    path: list[str] = []
    section = Section(())
    paragraph: list[str] = []
    fence = ""

    def end_paragraph() -> None:
        if body := "\n".join(paragraph).strip("\n").rstrip():
            section.paragraphs.append(body)
        paragraph.clear()

    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            fence = ""
        elif not fence and (heading := _HEADING.match(line)):
            end_paragraph()
            yield section
            level = len(heading[1])
            title = _without_closing_marks(heading[2])
            if len(title) > _LONGEST_HEADING:
                title = " ".join(title.split())
            path = [*path[: level - 1], *[""] * (level - 1 - len(path)), title[:_LONGEST_HEADING].rstrip()]
            section = Section(tuple(path), [title] if len(title) > _LONGEST_HEADING else [])
            continue
        if line.strip() or fence:
            paragraph.append(line)
        else:
            end_paragraph()
    end_paragraph()
    yield section


def _without_closing_marks(heading: str) -> str:
    """Of `# Title ##`. No regular expression: it would look for the end of blanks at each blank."""
    text = heading.rstrip(" \t")
    opened = text.rstrip("#")
    return opened.rstrip(" \t") if opened.endswith((" ", "\t")) else text


def pack(paragraphs: list[str], target: int) -> Iterator[str]:
    """Whole paragraphs together while they fit into `target`; one that alone doesn't is split."""
    held: list[str] = []
    size = 0
    for paragraph in paragraphs:
        for piece in split_long(paragraph, target):
            if held and size + 2 + len(piece) > target:
                yield "\n\n".join(held)
                held, size = [], 0
            size += len(piece) + (2 if held else 0)
            held.append(piece)
    if held:
        yield "\n\n".join(held)


def split_long(paragraph: str, target: int) -> Iterator[str]:
    """At line ends, else sentence ends, else spaces, else anywhere; every piece is at most `target` long."""
    if len(paragraph) <= target:
        yield paragraph
        return
    for separator, parts in (
        ("\n", paragraph.split("\n")),
        (" ", _SENTENCE_END.split(paragraph)),
        (" ", paragraph.split()),
    ):
        if len(parts) > 1:
            for joined in _join(parts, separator, target):
                yield from split_long(joined, target)
            return
    for first in range(0, len(paragraph), target):
        yield paragraph[first : first + target]


def _join(parts: list[str], separator: str, target: int) -> Iterator[str]:
    held = ""
    for part in parts:
        if held and len(held) + len(separator) + len(part) > target:
            yield held
            held = part
        else:
            held = f"{held}{separator}{part}" if held else part
    if held:
        yield held
