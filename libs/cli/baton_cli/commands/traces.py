"""`baton traces`: which requests there were, which failed and where, which were slow."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from baton_cli.edge_client import connect
from baton_cli.since import SINCE_HELP, UNTIL_HELP, moment_of
from baton_cli.terminal import KeyOption, UrlOption, console, show_table
from baton_cli.trace_table import DISPENSABLE, traces_table

_SLOWEST_OF = 1000
"""So many of the newest are compared."""


def traces(
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    slowest: Annotated[bool, typer.Option("--slowest", help="Slowest first, of the last thousand.")] = False,
    since: Annotated[str, typer.Option(help=SINCE_HELP)] = "24h",
    until: Annotated[str | None, typer.Option(help=UNTIL_HELP)] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="As the edge sends it.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """List requests of the key's tenant, newest first: how each ended, where, and what it took."""
    now = time.time()
    asked = {"since": str(int(moment_of("--since", since, now)))}
    if until:
        asked["until"] = str(int(moment_of("--until", until, now)))
    if failed:
        asked["status"] = "error"
    client = connect(url, key)
    try:
        found = client.traces(asked, max(limit, _SLOWEST_OF) if slowest else limit)
    finally:
        client.close()
    if slowest:
        found.sort(key=lambda traced: -float(traced["summary"]["total_ms"]))
    found = found[:limit]
    if as_json:
        console.print_json(json.dumps({"object": "list", "data": found}))
    elif found:
        show_table(traces_table(found), DISPENSABLE)
    else:
        console.print("None.")
