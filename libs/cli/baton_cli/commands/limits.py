"""`baton limits`: limits of teams and models, and a recount of what budgets have spent."""

from __future__ import annotations

import os
import time
from typing import Annotated, Literal

import typer
from rich.table import Table

from baton_cli import limit_options
from baton_cli.errors import CliError
from baton_cli.home import Home
from baton_cli.keys import DEV_TENANT, KeyBook
from baton_cli.limits import LimitBook, Options, rule_text, use_text
from baton_cli.operator_books import with_books
from baton_cli.terminal import console, show_table
from baton_common.catalog import catalog_or_exit
from baton_common.money import dollars
from baton_common.spending import Payer
from baton_contracts.identifiers import name_of_token
from baton_contracts.limits import AccountState, LimitRule, key_party, model_party, team_party

app = typer.Typer(no_args_is_help=True, help="Limits of teams and models; a key's are `baton keys limits`.")

Kind = Annotated[Literal["team", "model"], typer.Argument(help="team or model.")]
Name = Annotated[str, typer.Argument(help="Its name.")]
Tenant = Annotated[str, typer.Option(help="Of a team.")]


@app.command("set")
def set_limits(
    kind: Kind,
    name: Name,
    tenant: Tenant = DEV_TENANT,
    rpm: limit_options.Rpm = None,
    tpm: limit_options.Tpm = None,
    concurrent: limit_options.Concurrent = None,
    budget: limit_options.BudgetAmount = None,
    period: limit_options.Period = None,
    alert: limit_options.Alert = None,
) -> None:
    """Change a team's or a model's limits, at once; what is not named stays."""
    options = Options(rpm, tpm, concurrent, budget, period, alert, typed_at=time.time())
    rule = with_books(lambda _, book: book.change(_party(kind, name, tenant), options.change))
    console.print(f"{kind} {name}: {rule_text(rule)}")


@app.command("list")
def list_limits() -> None:
    """Teams and models that have limits, and what is used of them."""

    async def read(_: KeyBook, book: LimitBook) -> list[tuple[str, LimitRule, AccountState]]:
        return [(party, rule, await book.use(party)) for party, rule in (await book.rules()).items()]

    table = Table("Of", "Limits", "Used", box=None, header_style="bold")
    for party, rule, state in with_books(read):
        table.add_row(_shown(party), rule_text(rule), use_text(rule, state, time.time()))
    show_table(table)


@app.command()
def remove(kind: Kind, name: Name, tenant: Tenant = DEV_TENANT) -> None:
    """Take all limits of a team or a model away."""
    with_books(lambda _, book: book.remove(_party(kind, name, tenant)))
    console.print(f"{kind} {name} has no limits any more.")


@app.command()
def recount(
    kind: Annotated[Literal["key", "team", "model"], typer.Argument(help="key, team or model.")],
    name: Annotated[str, typer.Argument(help="A key's id, or the name of a team or a model.")],
    tenant: Tenant = DEV_TENANT,
) -> None:
    """Put what the ledger says a budget has spent in the place of what edges counted."""

    async def work(keys: KeyBook, book: LimitBook) -> tuple[int, int]:
        entries = await keys.list()
        if kind != "key":
            party = _party(kind, name, tenant)
            rule = (await book.rules()).get(party) or LimitRule()
            tenants = {tenant} if kind == "team" else {DEV_TENANT, *(entry.tenant_id for entry in entries)}
            return await book.recount(party, rule, Payer(kind, name, tenants))
        found = next((entry for entry in entries if entry.key_id == name), None)
        if found is None:
            raise CliError(f"No key {name!r}: `baton keys list` shows them.")
        return await book.recount(key_party(name), found.limits, Payer("key", name, {found.tenant_id}))

    if kind == "model" and name in catalog_or_exit(Home.from_environment(os.environ).root).aliases:
        raise CliError(f"{name} stands for other models, and the ledger names those that answered.")
    before, after = with_books(work)
    text = f"{kind} {name}: ${dollars(before)} was counted, ${dollars(after)} is in the ledger."
    console.print(text)


def _party(kind: str, name: str, tenant: str) -> str:
    if not name or len(name) > 128:
        raise CliError(f"The {kind} must be 1 to 128 characters.")
    return team_party(tenant, name) if kind == "team" else model_party(name)


def _shown(party: str) -> str:
    """Names as people know them: bytes outside [A-Za-z0-9_-] lie in the bucket as =XX."""
    kind, _, rest = party.partition(".")
    return f"{kind} {'/'.join(map(name_of_token, rest.split('.')))}"
