"""The `baton` command: which commands there are, and how an error reaches the person."""

from __future__ import annotations

import sys

import typer

from baton_cli.commands import cluster, keys, limits, models
from baton_cli.commands.ask import ask
from baton_cli.commands.chat import chat
from baton_cli.commands.ingest import ingest
from baton_cli.commands.plan import plan
from baton_cli.commands.reconcile import reconcile
from baton_cli.commands.top import top
from baton_cli.commands.trace import trace
from baton_cli.commands.traces import traces
from baton_cli.commands.up import up
from baton_cli.commands.usage import usage
from baton_cli.errors import CliError
from baton_cli.terminal import complaints

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Baton: LLM inference, end to end. `baton up` starts it.",
)
for command in (up, ask, chat, trace, traces, top, ingest, plan, usage, reconcile):
    app.command()(command)
app.add_typer(models.app, name="models")
app.add_typer(keys.app, name="keys")
app.add_typer(limits.app, name="limits")
app.add_typer(cluster.app, name="cluster")


def main() -> None:
    try:
        app()
    except CliError as error:
        complaints.print(f"baton: {error}", soft_wrap=True)
        sys.exit(error.exit_code)
    except OSError as error:  # where the output goes is full or gone, a folder may not be written
        complaints.print(f"baton: {error}", soft_wrap=True)
        sys.exit(1)
