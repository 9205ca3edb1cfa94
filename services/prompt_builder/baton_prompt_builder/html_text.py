"""HTML to Markdown-like text: headings, paragraphs, lists and code survive; scripts, menus and markup don't.

The parser's time grows with the square of the nesting, so depth is bounded before it sees the page; the tree
is walked with a stack of its own.
"""

from __future__ import annotations

import re
from collections import Counter

from selectolax.lexbor import LexborHTMLParser, LexborNode

_DROPPED = ["script", "style", "template", "noscript", "nav", "iframe", "svg", "form", "button", "select"]
_AROUND: dict[str, tuple[str, str]] = {
    **{f"h{level}": (f"\n\n{'#' * level} ", "\n\n") for level in range(1, 7)},
    **dict.fromkeys(
        ["p", "div", "section", "article", "main", "header", "footer", "aside"], ("\n\n", "\n\n")
    ),
    **dict.fromkeys(["ul", "ol", "dl", "dt", "dd", "table", "blockquote", "figure"], ("\n\n", "\n\n")),
    **dict.fromkeys(["figcaption", "caption", "details", "summary", "hr"], ("\n\n", "\n\n")),
    "li": ("\n- ", "\n"),
    "tr": ("\n", "\n"),
    "td": ("", " | "),
    "th": ("", " | "),
    "br": ("\n", ""),
}
"""What is written before and after an element's content."""
_MAX_DEPTH = 1000
"""Twice what browsers keep."""
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_VOID = "area base br col embed hr img input link meta source track wbr"
_CLOSED_BY_THE_NEXT = "p li dt dd tr td th option tbody thead"
_NEVER_NESTS = frozenset(f"{_VOID} {_CLOSED_BY_THE_NEXT}".split())
_BACKTICKS = re.compile(r"`+")
_SPACES = re.compile(r"[ \t\r\n\f]+")
_TEXT = "-text"


class NestedTooDeep(ValueError):
    """The page nests elements deeper than any real page does."""


def html_to_markdown(html: str) -> str:
    """The page's title is its first heading, unless it has a heading of level 1 of its own.
    Raises NestedTooDeep."""
    if _depth(html) > _MAX_DEPTH:
        raise NestedTooDeep(f"elements nest more than {_MAX_DEPTH} deep")
    tree = LexborHTMLParser(html)
    title = tree.css_first("head > title")
    heading = _SPACES.sub(" ", title.text()).strip() if title else ""
    has_h1 = tree.css_first("h1") is not None
    tree.strip_tags(_DROPPED)
    body = _walk(tree.body) if tree.body else ""
    return f"# {heading}\n\n{body}" if heading and body and not has_h1 else body


def _depth(html: str) -> int:
    """The deepest nesting of tags as written; a close tag counts only where its element is open."""
    num_open: Counter[str] = Counter()
    depth = deepest = 0
    for closing, tag in _TAG.findall(html):
        name = tag.lower()
        if name in _NEVER_NESTS or (closing and not num_open[name]):
            continue
        step = -1 if closing else 1
        num_open[name] += step
        depth += step
        deepest = max(deepest, depth)
    return deepest


def _walk(root: LexborNode) -> str:
    pieces: list[str] = []
    stack: list[LexborNode | str] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            pieces.append(item)
        elif item.tag == _TEXT:
            pieces.append(_text(item, at_start=not pieces or pieces[-1].endswith(("\n", " "))))
        elif item.tag == "pre":
            pieces.append(_fenced(item.text().strip("\n")))
        else:
            before, after = _AROUND.get(item.tag or "", ("", ""))
            pieces.append(before)
            stack.append(after)
            stack.extend(reversed(list(item.iter(include_text=True))))
    lines = "".join(pieces).split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def _fenced(code: str) -> str:
    """The fence is longer than any row of backticks in it, so that none of them ends it."""
    fence = "`" * max([3, *(len(row) + 1 for row in _BACKTICKS.findall(code))])
    return f"\n\n{fence}\n{code}\n{fence}\n\n"


def _text(node: LexborNode, *, at_start: bool) -> str:
    collapsed = _SPACES.sub(" ", node.text(deep=False))
    return collapsed.lstrip(" ") if at_start else collapsed
