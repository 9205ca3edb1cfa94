"""Who the operator of the bus is, and the two books of it, keys and limits, for one piece of work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from baton_cli.errors import CliError
from baton_cli.home import Home
from baton_cli.keys import KeyBook, key_book
from baton_cli.limits import LimitBook, limit_book
from baton_cli.operator_bus import Operator, operator_bus

_T = TypeVar("_T")


def operator_of(environment: Mapping[str, str]) -> Operator:
    """From the environment (a bus elsewhere), or from what `baton up` wrote. Raises CliError."""
    url = environment.get("BATON_NATS_URL")
    password = environment.get("BATON_OPERATOR_PASSWORD")
    if url and password:
        return Operator(url, "operator", password)
    home = Home.from_environment(environment)
    try:
        return Operator.decode(home.operator.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CliError(
            f"Baton does not run on {home.root} (no {home.operator.name} in its run folder). Start it with "
            "`make up`, or set BATON_NATS_URL and BATON_OPERATOR_PASSWORD."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{home.operator} can't be read: {error}. `make up` writes it anew.") from error


def with_books(work: Callable[[KeyBook, LimitBook], Awaitable[_T]]) -> _T:
    """Opens both, and closes them after it. Raises CliError."""

    async def run() -> _T:
        async with operator_bus(operator_of(os.environ)) as client:
            return await work(await key_book(client), await limit_book(client))

    return asyncio.run(run())
