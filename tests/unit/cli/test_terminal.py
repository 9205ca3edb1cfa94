"""Tables: whole in a pipe, and as much as fits on a terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from baton_cli.terminal import show_table


def shown(width: int, *, terminal: bool, dispensable: tuple[str, ...] = ("Team", "Created")) -> list[str]:
    table = Table("Id", "Created", "Team", "Limits", box=None)
    table.add_row("key-1", "2026-11-30", "default", "60/min · 4 at once")
    out = io.StringIO()
    to = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    show_table(table, dispensable, to)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_in_a_pipe_a_row_is_a_line_however_long() -> None:
    for width in (10, 80, 500):
        head, row = shown(width, terminal=False)
        assert head.split() == ["Id", "Created", "Team", "Limits"]
        assert row.split() == ["key-1", "2026-11-30", "default", "60/min", "·", "4", "at", "once"]


def test_a_narrow_terminal_goes_without_what_can_be_missed() -> None:
    head, row, note = shown(42, terminal=True)
    assert head.split() == ["Id", "Created", "Limits"]
    assert row.split()[:2] == ["key-1", "2026-11-30"]
    assert note == "Not shown, for want of width: Team."
    assert len(shown(80, terminal=True)) == 2


def test_what_can_not_be_missed_is_wrapped() -> None:
    lines = shown(20, terminal=True)
    assert lines[0].split() == ["Id", "Limits"]
    assert " ".join(lines[1].split()[:1]) == "key-1"
    assert "".join(lines).count("Not shown, for want") == 1
