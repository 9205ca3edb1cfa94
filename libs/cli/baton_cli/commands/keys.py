"""`baton keys`: API keys, over the bus as its operator."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypeVar

import typer
from rich.table import Table

from baton_cli.errors import CliError
from baton_cli.home import Home
from baton_cli.keys import DEV_TENANT, KeyBook, Operator, open_key_book
from baton_cli.terminal import console

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")

_T = TypeVar("_T")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    tenant: Annotated[str, typer.Option(help="Whose data it reaches.")] = DEV_TENANT,
    team: Annotated[str, typer.Option(help="Who pays, within the tenant.")] = "default",
) -> None:
    """Make a key. It is printed once and stored nowhere."""
    _check_names(name=name, tenant=tenant, team=team)
    key, record = _with_book(lambda book: book.create(tenant_id=tenant, team=team, name=name))
    console.print(key, markup=False, soft_wrap=True)
    console.print(f"{record.key_id} for {tenant}/{team}. Keep it now: it can't be shown again.", style="dim")


@app.command("list")
def list_keys() -> None:
    """All keys, without the keys themselves."""
    table = Table("Id", "Tenant", "Team", "Name", "Created", "State", box=None, header_style="bold")
    for record in _with_book(lambda book: book.list()):
        state = "revoked" if record.revoked else "valid"
        table.add_row(record.key_id, record.tenant_id, record.team, record.name, record.created_at, state)
    console.print(table)


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="As `baton keys list` shows it.")]) -> None:
    """End a key's validity, at once and for good."""
    record = _with_book(lambda book: book.revoke(key_id))
    console.print(f"{record.key_id} ({record.name}) is revoked.", markup=False)


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


def _with_book(work: Callable[[KeyBook], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        async with open_key_book(operator_of(os.environ)) as book:
            return await work(book)

    return asyncio.run(run())


def _check_names(**names: str) -> None:
    for what, name in names.items():
        if not name or len(name) > 128 or not name.isprintable():
            raise CliError(f"The {what} must be 1 to 128 printable characters.")
