"""`baton keys`: API keys and their limits, over the bus as its operator."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer
from rich.table import Table

from baton_cli import limit_options
from baton_cli.errors import CliError
from baton_cli.keys import DEV_TENANT, KeyBook
from baton_cli.limits import LimitBook, Options, rule_text, use_text
from baton_cli.operator_books import with_books
from baton_cli.terminal import console, show_table
from baton_contracts.keys import KeyEntry
from baton_contracts.limits import AccountState, LimitRule, key_party

app = typer.Typer(no_args_is_help=True, help="Make, list, limit, rotate and revoke API keys.")

_DURATION = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

KeyId = Annotated[str, typer.Argument(help="As `baton keys list` shows it.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    tenant: Annotated[str, typer.Option(help="Whose data it reaches.")] = DEV_TENANT,
    team: Annotated[str, typer.Option(help="Who pays, within the tenant.")] = "default",
    rpm: limit_options.Rpm = None,
    tpm: limit_options.Tpm = None,
    concurrent: limit_options.Concurrent = None,
    budget: limit_options.BudgetAmount = None,
    period: limit_options.Period = None,
    alert: limit_options.Alert = None,
    models: limit_options.Models = None,
) -> None:
    """Make a key. It is printed once and stored nowhere."""
    _check_names(name=name, tenant=tenant, team=team)
    limits = Options(rpm, tpm, concurrent, budget, period, alert).change(LimitRule())
    names = limit_options.model_names(models) or ()
    key, entry = with_books(
        lambda keys, _: keys.create(tenant_id=tenant, team=team, name=name, limits=limits, models=names)
    )
    console.print(key, soft_wrap=True)
    text = f"{entry.key_id} for {tenant}/{team}. Keep it now: it can't be shown again."
    console.print(text, style="dim")
    _show_limits(entry)


@app.command("list")
def list_keys() -> None:
    """All keys, without the keys themselves, with their limits and what is used of them."""
    now = time.time()

    async def read(keys: KeyBook, limits: LimitBook) -> list[tuple[KeyEntry, AccountState]]:
        return [(entry, await limits.use(key_party(entry.key_id))) for entry in await keys.list()]

    table = Table(
        "Id", "Tenant", "Team", "Name", "Created", "State", "Limits", "Used", box=None, header_style="bold"
    )
    for entry, state in with_books(read):
        limits = rule_text(entry.limits) + (f" · {', '.join(entry.models)}" if entry.models else "")
        table.add_row(
            entry.key_id,
            entry.tenant_id,
            entry.team,
            entry.name,
            str(entry.created_at),
            _state(entry, now),
            limits,
            use_text(entry.limits, state, now),
        )
    show_table(table, ("Created", "Tenant", "Team"))


@app.command()
def limits(
    key_id: KeyId,
    rpm: limit_options.Rpm = None,
    tpm: limit_options.Tpm = None,
    concurrent: limit_options.Concurrent = None,
    budget: limit_options.BudgetAmount = None,
    period: limit_options.Period = None,
    alert: limit_options.Alert = None,
    models: limit_options.Models = None,
) -> None:
    """Change a key's limits, at once; what is not named stays."""
    options = Options(rpm, tpm, concurrent, budget, period, alert, typed_at=time.time())
    names = limit_options.model_names(models)
    entry = with_books(lambda keys, _: keys.set_limits(key_id, options.change, names))
    console.print(f"{entry.key_id} ({entry.name})")
    _show_limits(entry)


@app.command()
def rotate(
    key_id: KeyId,
    grace: Annotated[str, typer.Option(help="How long the old key is valid yet: 90s, 15m, 24h, 7d.")] = "24h",
) -> None:
    """Make a new key in the place of an old one: same id, same limits."""
    found = _DURATION.fullmatch(grace)
    if not found:
        raise CliError(f"--grace takes a number and s, m, h or d, as 24h, not {grace!r}.")
    seconds = int(found[1]) * _SECONDS[found[2]]
    key, entry = with_books(lambda keys, _: keys.rotate(key_id, seconds))
    console.print(key, soft_wrap=True)
    text = (
        f"{entry.key_id}: the old key is valid for {grace} yet. Keep this one now: it can't be shown again."
    )
    console.print(text, style="dim")


@app.command()
def revoke(key_id: KeyId) -> None:
    """End a key's validity, at once and for good."""
    entry = with_books(lambda keys, _: keys.revoke(key_id))
    console.print(f"{entry.key_id} ({entry.name}) is revoked.")


def _show_limits(entry: KeyEntry) -> None:
    models = ", ".join(entry.models) or "all"
    console.print(f"Limits: {rule_text(entry.limits)}. Models: {models}.", style="dim")


def _state(entry: KeyEntry, now: float) -> str:
    if entry.revoked:
        return "revoked"
    if entry.expires_at is None:
        return "valid"
    left = entry.expires_at - now
    return "expired" if left <= 0 else f"replaced, valid for {max(1, round(left / 60))} min"


def _check_names(**names: str) -> None:
    for what, name in names.items():
        if not name or len(name) > 128 or not name.isprintable():
            raise CliError(f"The {what} must be 1 to 128 printable characters.")
