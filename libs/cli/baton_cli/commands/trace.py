"""`baton trace`: one request's way through the ten stops, as a waterfall."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from baton_cli.edge_client import EdgeClient, connect
from baton_cli.errors import CliError, EdgeRefused
from baton_cli.terminal import KeyOption, UrlOption, console
from baton_cli.trace_view import parse_trace
from baton_cli.waterfall import waterfall
from baton_contracts.identifiers import parse_request_id

PATIENCE_SECONDS = 3.0
"""The last stops report after the answer: how long a trace just made may take to be whole."""
_POLL_SECONDS = 0.2


def trace(
    request_id: Annotated[str, typer.Argument(help="The x-request-id of an answer.")],
    until: Annotated[float | None, typer.Option(min=0.1, help="Only the first so many ms, enlarged.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As the edge sends it.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Show where a request spent its time, stop by stop."""
    known = parse_request_id(request_id)
    if known is None:
        raise CliError(f"{request_id!r} is no request id: those are 32 hex digits, as in x-request-id.")
    client = connect(url, key)
    try:
        body = settled_trace(client, known)
    finally:
        client.close()
    if as_json:
        console.print_json(json.dumps(body))
        return
    for line in waterfall(parse_trace(body), console.width, until_ms=until):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def settled_trace(
    client: EdgeClient,
    request_id: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """The trace once every stop has reported, or as it is when patience ends."""
    give_up_at = clock() + PATIENCE_SECONDS
    while True:
        try:
            body = client.trace(request_id)
        except EdgeRefused as error:
            if error.status != 404 or clock() >= give_up_at:
                raise
        else:
            if body.get("summary", {}).get("status") != "running" or clock() >= give_up_at:
                return body
        sleep(_POLL_SECONDS)
