"""Tells a chat template's own control tokens from the same strings in user text.

Owns the marks. When a template is compiled, each control-token string among its literals is replaced
by a mark that holds a random nonce; user text goes into the template unchanged. After rendering, a mark
is a control token and everything else is ordinary text, however it was put together: whole, in two
content parts, through a filter. So nothing that a user sends can forge a control token, and templates
still see the real text where they strip, split or search it.

Literals that a template only looks for (in `if`, comparisons, `content.split('</think>')`) are never
written out, so they are left alone: there the template must find the text itself.

Some templates build a control token around the role (`'<|' + message.role + '|>'`). For vocabularies
with such tokens, the literals on both sides get half marks, which count only around a known role.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Final

from jinja2 import nodes

from baton_engine.errors import RequestRejected
from baton_engine.text.plain_text import any_of

# Methods and filters whose arguments are searched for, not written out. Of `replace`, only the first.
_SEARCHING: Final = frozenset(
    {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "find", "rfind", "index"}
    | {
        "rindex",
        "count",
        "strip",
        "lstrip",
        "rstrip",
        "trim",
        "removeprefix",
        "removesuffix",
        "get",
        "replace",
    }
)
_MEASURING_FILTERS: Final = frozenset({"length", "count"})
_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function", "ipython", "observation")

Piece = str | int  # ordinary text, or the id of a control token


class TemplateMarks:
    """The marks of one template. `control_tokens`: the text of each added token → its id."""

    def __init__(self, control_tokens: Mapping[str, int]) -> None:
        self._nonce = secrets.token_hex(16)
        self._ids = dict(control_tokens)
        self._control = any_of(self._ids)
        self._halves = _role_halves(self._ids)
        self._before_role = any_of({before for before, _ in self._halves}, suffix=r"\Z")
        self._after_role = any_of({after for _, after in self._halves}, prefix=r"\A")
        self._mark = re.compile(self._mark_of(r"(\d+)"))
        role = "|".join(_ROLES)
        self._role = re.compile(
            f"\ue000{self._nonce}<(?P<before>[^\ue001]*)\ue001(?P<role>{role})\ue000{self._nonce}>(?P<after>[^\ue001]*)\ue001"
        )
        self._half = re.compile(f"\ue000{self._nonce}[<>]([^\ue001]*)\ue001")

    def mark_text(self, text: str) -> str:
        """Text that is trusted, such as the value of `bos_token`, with its control tokens marked."""
        marked = self._control.sub(lambda match: self._mark_of(self._ids[match[0]]), text)
        if not self._halves:
            return marked
        marked = self._before_role.sub(lambda match: f"\ue000{self._nonce}<{match[0]}\ue001", marked)
        return self._after_role.sub(lambda match: f"\ue000{self._nonce}>{match[0]}\ue001", marked)

    def mark_template(self, template: nodes.Template) -> None:
        """Mark the literals of a parsed template that can be written out, in place."""
        for literal in _written_literals(template):
            if isinstance(literal, nodes.TemplateData):
                literal.data = self.mark_text(literal.data)
            elif isinstance(literal.value, str):
                literal.value = self.mark_text(literal.value)

    def pieces(self, rendered: str) -> list[Piece]:
        """Split what a marked template rendered into ordinary text and control-token ids.

        Raises RequestRejected if the template took a mark apart: its text can't be told from a user's.
        """
        rendered = self._role.sub(self._whole_role_token, rendered)
        rendered = self._half.sub(lambda match: match[1], rendered)
        found: list[Piece] = []
        for place, part in enumerate(self._mark.split(rendered)):
            if place % 2:
                found.append(int(part))
            elif part:
                found.append(part)
        if any(self._nonce in piece for piece in found if isinstance(piece, str)):
            raise RequestRejected(
                "chat_template_error", "messages", "The model's chat template cuts its control tokens apart."
            )
        return found

    def _mark_of(self, token_id: int | str) -> str:
        """The nonce stands at both ends, so that a mark with one end cut off is noticed."""
        return f"\ue000{self._nonce}:{token_id}:{self._nonce}\ue001"

    def _whole_role_token(self, match: re.Match[str]) -> str:
        token_id = self._ids.get(match["before"] + match["role"] + match["after"])
        return match[0] if token_id is None else self._mark_of(token_id)


def cut_behind(pieces: list[Piece], text: str) -> list[Piece]:
    """The pieces up to where `text` stands last: that is where it may go on. Templates may strip it.

    Raises RequestRejected if it is not there (the template changes it), or is empty.
    """
    stripped = text.strip()
    for place in range(len(pieces) - 1, -1, -1) if stripped else ():
        piece = pieces[place]
        if isinstance(piece, str) and (start := piece.rfind(stripped)) >= 0:
            whole = text.lstrip()
            end = start + len(whole if piece.startswith(whole, start) else stripped)
            return [*pieces[:place], piece[:end]]
    raise RequestRejected(
        "chat_template_error",
        "messages",
        "The model's chat template does not write the last message as it is.",
    )


def _role_halves(control_tokens: Mapping[str, int]) -> set[tuple[str, str]]:
    """`<|user|>` → (`<|`, `|>`): what stands around a role inside a control token."""
    halves: set[tuple[str, str]] = set()
    for text in control_tokens:
        for role in _ROLES:
            before, found, after = text.partition(role)
            if found and before and after:
                halves.add((before, after))
    return halves


def _written_literals(node: nodes.Node) -> Iterator[nodes.Const | nodes.TemplateData]:
    """All literals below `node` whose value can reach the output."""
    if isinstance(node, nodes.Const | nodes.TemplateData):
        yield node
        return
    for child in _written_children(node):
        yield from _written_literals(child)


def _written_children(node: nodes.Node) -> Iterator[nodes.Node]:
    """The children of `node` without those that are only tested, compared, searched for or looked up."""
    match node:
        case nodes.Compare() | nodes.Test() | nodes.Slice():
            return
        case nodes.If() | nodes.CondExpr():
            yield from (child for child in node.iter_child_nodes() if child is not node.test)
        case nodes.For():
            yield from (child for child in node.iter_child_nodes() if child is not node.test)
        case nodes.Getitem():
            yield node.node
        case nodes.Pair():
            yield node.value
        case nodes.Filter():
            yield from _filter_children(node)
        case nodes.Call():
            yield from _call_children(node)
        case _:
            yield from node.iter_child_nodes()


def _filter_children(node: nodes.Filter) -> Iterator[nodes.Node]:
    if node.node is not None and node.name not in _MEASURING_FILTERS:
        yield node.node
    yield from _arguments(node, node.name)


def _call_children(node: nodes.Call) -> Iterator[nodes.Node]:
    yield node.node
    if isinstance(node.node, nodes.Name) and node.node.name == "raise_exception":
        return  # the message goes to a person, who must not see the nonce
    yield from _arguments(node, node.node.attr if isinstance(node.node, nodes.Getattr) else "")


def _arguments(node: nodes.Filter | nodes.Call, name: str) -> Iterator[nodes.Node]:
    if name == "replace":
        yield from node.args[1:]
    elif name not in _SEARCHING:
        yield from node.args
        yield from (keyword.value for keyword in node.kwargs)
