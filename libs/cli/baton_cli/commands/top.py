"""`baton top`: what is slow now, by model and by replica."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Annotated

import typer

from baton_cli.edge_client import connect
from baton_cli.errors import CliError
from baton_cli.operator_books import operator_of
from baton_cli.operator_bus import Operator, operator_bus
from baton_cli.replica_beats import replica_beats
from baton_cli.since import SINCE_HELP, moment_of
from baton_cli.terminal import KeyOption, UrlOption, complaints, console, show_table
from baton_cli.trace_table import DISPENSABLE_OF_MODELS, by_model, models_table, replicas_table
from baton_contracts.heartbeats import ReplicaHeartbeat

_NEWEST = 1000


def top(
    since: Annotated[str, typer.Option(help=SINCE_HELP)] = "10m",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Show how the last requests went, by model (the newest thousand at most), and what each replica does."""
    client = connect(url, key)
    try:
        asked = {"since": str(int(moment_of("--since", since, time.time())))}
        models = by_model(client.traces(asked, _NEWEST))
    finally:
        client.close()
    beats = _replicas()
    if as_json:
        replicas = [beat.model_dump(mode="json") for beat in beats]
        console.print_json(json.dumps({"models": models, "replicas": replicas}))
        return
    if models:
        show_table(models_table(models), DISPENSABLE_OF_MODELS)
    else:
        console.print(f"No request since {since}.")
    if beats:
        console.print()
        show_table(replicas_table(beats))


def _replicas() -> list[ReplicaHeartbeat]:
    """None of them, and a word of it, where this is not the operator's machine."""
    try:
        return asyncio.run(_heard(operator_of(os.environ)))
    except CliError as error:
        complaints.print(f"No replicas shown: {error}", soft_wrap=True)
        return []


async def _heard(operator: Operator) -> list[ReplicaHeartbeat]:
    async with operator_bus(operator, name="baton top") as client:
        return await replica_beats(client)
