"""`baton usage`: what was used and what it cost, from the ledger."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from baton_cli.edge_client import connect
from baton_cli.terminal import KeyOption, UrlOption, console, printable

_HEADS = {"key_id": "Key", "team": "Team", "model": "Model", "day": "Day"}
_COUNTS = ("requests", "attempts", "prompt_tokens", "cached_tokens", "completion_tokens")


def usage(
    by: Annotated[
        str, typer.Option(help="What is told apart: key, team, model, day, with commas.")
    ] = "model",
    days: Annotated[int, typer.Option(min=1, max=3660, help="How far back, today included.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="As the edge sends it.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Show requests, tokens and cost of the key's tenant, added up from the ledger."""
    since = (datetime.now(UTC) - timedelta(days=days - 1)).date().isoformat()
    client = connect(url, key)
    try:
        body = client.usage(by, since)
    finally:
        client.close()
    if as_json:
        console.print_json(json.dumps(body))
        return
    rows = cast("list[dict[str, Any]]", body.get("data") or [])
    console.print(usage_table(rows))


def usage_table(rows: list[dict[str, Any]]) -> Table:
    names = [name for name in _HEADS if any(name in row for row in rows)]
    table = Table(*(_HEADS[name] for name in names), box=None, header_style="bold")
    for head in ("Requests", "Attempts", "Prompt", "Cached", "Answer", "Cost"):
        table.add_column(head, justify="right")
    for row in rows:
        told = [printable(str(row.get(name, ""))) for name in names]
        counts = [f"{int(row.get(name, 0)):,}" for name in _COUNTS]
        table.add_row(*told, *counts, f"${row.get('cost_usd', '0')}")
    return table
