"""The terminal: a console for answers, one for complaints, and options that commands share."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

console = Console(highlight=False, markup=False, emoji=False)
complaints = Console(stderr=True, highlight=False, markup=False, emoji=False)
"""Names that people gave are in what is printed: `[eu]` is no style, and `:on:` no picture."""

UrlOption = Annotated[str | None, typer.Option("--url", help="Where the edge is (BATON_URL).")]
KeyOption = Annotated[str | None, typer.Option("--key", help="The API key (BATON_API_KEY, BATON_DEV_KEY).")]


def printable(text: str) -> str:
    """A model's text without what could steer the terminal; line breaks and tabs stay."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


def write(text: str) -> None:
    """At once, as it is: no wrapping, no markup."""
    console.file.write(printable(text))
    console.file.flush()
