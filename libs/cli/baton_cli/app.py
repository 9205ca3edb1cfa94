"""The `baton` command: which commands there are, and how an error reaches the person."""

from __future__ import annotations

import sys

import typer

from baton_cli.commands import models, up
from baton_cli.errors import CliError
from baton_cli.terminal import complaints

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Baton: LLM inference, end to end. `baton up` starts it.",
)
app.command()(up.up)
app.add_typer(models.app, name="models")


def main() -> None:
    try:
        app()
    except CliError as error:
        complaints.print(f"baton: {error}", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
