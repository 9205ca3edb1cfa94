"""`baton reconcile`: do ledger, traces and engine counters say the same?"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Annotated

import typer

from baton_cli.operator_books import operator_of
from baton_cli.reconcile.collecting import collect
from baton_cli.reconcile.differences import differences, lasting
from baton_cli.since import SINCE_HELP, moment_of
from baton_cli.terminal import console

SETTLE_SECONDS = 10.0
"""A gateway that was lost is missed after some seconds, and then an engine stores its rows; the row of a
migrated attempt waits for the next acceptance."""


def reconcile(
    since: Annotated[str, typer.Option(help=SINCE_HELP)] = "24h",
) -> None:
    """Compare ledger, traces and engine counters. Exit status 1 if anything differs for ten seconds."""
    began = moment_of("--since", since, time.time())
    operator = operator_of(os.environ)
    found = asyncio.run(collect(operator, since=began))
    told = differences(found, since=began)
    if told:
        time.sleep(SETTLE_SECONDS)
        found = asyncio.run(collect(operator, since=began))
        told = lasting(told, differences(found, since=began))
    for one in told:
        console.print(f"{one.kind}: {one.request_id} {one.text}", soft_wrap=True)
    if told:
        for instance, num_dropped in sorted(found.spans_dropped.items()):
            text = f"{instance} had to drop spans of {num_dropped} requests: the bus was away, or too small"
            console.print(f"note: {text}", soft_wrap=True)
    counts = f"{len(found.rows)} ledger rows, {len(found.runs)} engine runs, {len(found.replicas)} replicas"
    console.print(f"{counts}: {len(told) or 'no'} differences")
    if told:
        raise typer.Exit(1)
