"""`baton trace`: one request's way through the ten stops, as a waterfall."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from baton_cli.edge_client import connect
from baton_cli.errors import CliError
from baton_cli.terminal import KeyOption, UrlOption, console
from baton_cli.trace_view import parse_trace
from baton_cli.waterfall import waterfall
from baton_contracts.identifiers import parse_request_id


def trace(
    request_id: Annotated[str, typer.Argument(help="The x-request-id of an answer.")],
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
        body = client.trace(known)
    finally:
        client.close()
    if as_json:
        console.print_json(json.dumps(body))
        return
    for line in waterfall(parse_trace(body), console.width):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
