"""The options by which commands name limits."""

from __future__ import annotations

from typing import Annotated

import typer

from baton_contracts.limits import BudgetPeriod

Rpm = Annotated[str | None, typer.Option("--rpm", help="Requests a minute; `none`: no limit.")]
Tpm = Annotated[str | None, typer.Option("--tpm", help="Tokens a minute, prompts and answers; or `none`.")]
Concurrent = Annotated[str | None, typer.Option("--concurrent", help="Requests at once; or `none`.")]
BudgetAmount = Annotated[
    str | None, typer.Option("--budget", help="US dollars a period, as 12.50; or `none`.")
]
Period = Annotated[BudgetPeriod | None, typer.Option("--period", help="The budget's: day, month or total.")]
Alert = Annotated[
    int | None, typer.Option("--alert", min=1, max=100, help="Per cent of the budget at which it is told.")
]
Models = Annotated[
    str | None, typer.Option("--models", help="Models it may ask for, with commas; `all` for every one.")
]


def model_names(text: str | None) -> tuple[str, ...] | None:
    """None: not named. Empty: all."""
    if text is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    return () if names == ("all",) else names
