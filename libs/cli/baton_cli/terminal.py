"""The terminal: a console for answers, one for complaints, and options that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

console = Console(highlight=False, markup=False, emoji=False)
complaints = Console(stderr=True, highlight=False, markup=False, emoji=False)
"""Names that people gave are in what is printed: `[eu]` is no style, and `:on:` no picture."""

_WIDEST = 10_000
"""Columns of a table in a pipe."""

UrlOption = Annotated[str | None, typer.Option("--url", help="Where the edge is (BATON_URL).")]
KeyOption = Annotated[str | None, typer.Option("--key", help="The API key (BATON_API_KEY, BATON_DEV_KEY).")]


def printable(text: str) -> str:
    """A model's text without what could steer the terminal; line breaks and tabs stay."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


def write(text: str) -> None:
    """At once, as it is: no wrapping, no markup."""
    console.file.write(printable(text))
    console.file.flush()


def show_table(table: Table, dispensable: Sequence[str] = (), to: Console = console) -> None:
    """Whole and unwrapped where it goes into a pipe or a file. A terminal that is too narrow gets it without
    the columns of these heads, in this order, as far as needed; then cells wrap."""
    if not to.is_terminal:
        for line in to.render_lines(table, to.options.update(width=_width(table, to))):
            to.file.write("".join(segment.text for segment in line).rstrip() + "\n")
        return
    left_out: list[str] = []
    for column in sorted(table.columns, key=lambda column: _rank(column.header, dispensable)):
        if _width(table, to) <= to.width or column.header not in dispensable:
            break
        table.columns.remove(column)
        left_out.append(str(column.header))
    to.print(table)
    if left_out:
        to.print(f"Not shown, for want of width: {', '.join(left_out)}.", style="dim")


def _width(table: Table, to: Console) -> int:
    return Measurement.get(to, to.options.update(width=_WIDEST), table).maximum


def _rank(head: object, dispensable: Sequence[str]) -> int:
    return dispensable.index(str(head)) if head in dispensable else len(dispensable)
