"""`baton usage`: what was used and what it cost, from the ledger."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Annotated, Any

import typer
from rich.table import Table

from baton_cli.edge_client import connect
from baton_cli.since import SINCE_HELP, UNTIL_HELP, moment_of
from baton_cli.terminal import KeyOption, UrlOption, console, printable, show_table

_HEADS = {"key_id": "Key", "team": "Team", "model": "Model", "day": "Day"}
_COUNTS = ("requests", "attempts", "prompt_tokens", "cached_tokens", "completion_tokens")


def usage(
    by: Annotated[
        str, typer.Option(help="What is told apart: key, team, model, day, with commas.")
    ] = "model",
    since: Annotated[str, typer.Option(help=SINCE_HELP)] = "month",
    until: Annotated[str | None, typer.Option(help=UNTIL_HELP)] = None,
    of_key: Annotated[str | None, typer.Option("--key-id", help="Only of this key (its id).")] = None,
    team: Annotated[str | None, typer.Option(help="Only of this team.")] = None,
    model: Annotated[str | None, typer.Option(help="Only of this model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As the edge sends it.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Show the tenant's requests, tokens and cost, from the ledger: this month's, if no time is named."""
    now = time.time()
    asked = {"by": by, "since": str(int(moment_of("--since", since, now)))}
    if until:
        asked["until"] = str(int(moment_of("--until", until, now)))
    asked |= {name: one for name, one in (("key_id", of_key), ("team", team), ("model", model)) if one}
    client = connect(url, key)
    try:
        rows = client.usage(asked)
    finally:
        client.close()
    if as_json:
        console.print_json(json.dumps({"object": "list", "data": rows}))
        return
    if not rows:
        console.print("None.")
        return
    show_table(usage_table(rows), ("Attempts", "Cached"))


def usage_table(rows: list[dict[str, Any]]) -> Table:
    names = [name for name in _HEADS if any(name in row for row in rows)]
    table = Table(*(_HEADS[name] for name in names), box=None, header_style="bold")
    for head in ("Requests", "Attempts", "Prompt", "Cached", "Answer", "Cost"):
        table.add_column(head, justify="right")
    for row in rows:
        told = [printable(str(row.get(name, ""))) for name in names]
        counts = [f"{int(row.get(name, 0)):,}" for name in _COUNTS]
        table.add_row(*told, *counts, f"${row.get('cost_usd', '0')}")
    if len(rows) > 1:
        sums = [f"{sum(int(row.get(name, 0)) for row in rows):,}" for name in _COUNTS]
        cost = sum((Decimal(row.get("cost_usd", "0")) for row in rows), Decimal(0))
        table.add_row("All", *[""] * (len(names) - 1), *sums, f"${cost:f}", style="bold")
    return table
