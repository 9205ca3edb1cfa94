"""`baton models`: fetch a model, list what is known and what is there."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.table import Table

from baton_cli.errors import CliError
from baton_cli.home import Home, wants_large
from baton_cli.models.progress import pull_progress
from baton_cli.models.pull import Puller
from baton_cli.models.store import InstalledModel, ModelStore
from baton_cli.terminal import console, show_table
from baton_common.catalog import Catalog, load_catalog

app = typer.Typer(no_args_is_help=True, help="Fetch models and list them.")


@app.command()
def pull(
    wanted: Annotated[
        str, typer.Argument(help="Name in the catalog, OWNER/NAME on the hub, a folder or a .gguf file.")
    ] = "",
    name: Annotated[str | None, typer.Option(help="What to call it here (not for catalog names).")] = None,
    defaults: Annotated[
        bool,
        typer.Option(
            "--defaults", help="What `baton up` fetches; without the large one if BATON_LARGE_MODEL=off."
        ),
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Fetch and convert even if it is there.")] = False,
) -> None:
    """Fetch a model: download, verify, convert. An interrupted pull goes on where it stopped."""
    if bool(wanted) == defaults:
        raise CliError("Name one model, or use --defaults.")
    home = Home.from_environment(os.environ)
    with pull_progress(console) as progress:
        puller = Puller(ModelStore(home.models), load_catalog(), progress)
        if defaults:
            pulled = list(puller.pull_defaults(large=wants_large(os.environ), again=again))
        else:
            pulled = [puller.pull(wanted, name=name, again=again)]
    for model in pulled:
        console.print(f"{model.manifest.name} is in {model.path}", soft_wrap=True)


@app.command("list")
def list_models() -> None:
    """The catalog, and what is on this machine."""
    home = Home.from_environment(os.environ)
    show_table(models_table(load_catalog(), ModelStore(home.models)), ("Family", "Licence"))
    for alias in load_catalog().aliases.values():
        stands = f"{alias.small} or {alias.large}" if alias.large else alias.small
        console.print(f"{alias.name} = {stands}: {alias.about}", soft_wrap=not console.is_terminal)


def models_table(catalog: Catalog, store: ModelStore) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column("Model", no_wrap=True)
    for title in ("Size", "Family", "Context", "Licence", "Here"):
        table.add_column(title, overflow="fold")
    installed = {model.manifest.name: model for model in store.installed()}
    for model in catalog.models.values():
        licence = model.licence.name + (
            "" if model.licence.stated_by_upload else " (upstream; upload states none)"
        )
        here = _here(installed.pop(model.name, None), "no (baton models pull)")
        table.add_row(model.name, model.size_class, model.family, f"{model.context_length:,}", licence, here)
    for extra in installed.values():
        table.add_row(extra.manifest.name, "-", "-", "-", extra.manifest.licence, _here(extra, ""))
    return table


def _here(model: InstalledModel | None, otherwise: str) -> str:
    return f"yes, {model.size_bytes / 1e6:,.0f} MB" if model else otherwise
