"""`baton cluster`: what a copy of Baton in containers needs before its first process starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from baton_cli.cluster import Addresses, Cluster, give_to
from baton_cli.home import Home, wants_large
from baton_cli.models.progress import pull_progress
from baton_cli.models.pull import Puller
from baton_cli.models.store import ModelStore
from baton_cli.terminal import console
from baton_cli.up.banner import curl_line
from baton_cli.up.settings import read_settings
from baton_common.catalog import load_catalog

app = typer.Typer(no_args_is_help=True, help="Set up Baton in containers.")


@app.command()
def prepare(
    nats_url: Annotated[str, typer.Option(help="The bus, as services reach it.")] = "nats://nats:4222",
    database_url: Annotated[
        str, typer.Option(help="The database, as after_answer reaches it, without a password.")
    ] = "postgresql://baton@postgres:5432/baton",
    nats_store: Annotated[Path, typer.Option(help="JetStream's folder in the bus' container.")] = Path(
        "/data"
    ),
    monitor_port: Annotated[int, typer.Option(help="The bus' health checks, loop-back only.")] = 8222,
    models: Annotated[bool, typer.Option(help="Fetch the default models too.")] = True,
) -> None:
    """Write the bus' configuration and each service's secrets, fetch the models, show the key."""
    settings = read_settings(os.environ)
    home = Home.from_environment(os.environ)
    cluster = Cluster(home, Addresses(nats_url, database_url, nats_store, monitor_port), give_to)
    known = cluster.prepare(settings.dev_key)
    console.print(f"Configuration and secrets are in {home.run}", soft_wrap=True)
    if models:
        _pull(home)
    for line in ("", f"  URL  {settings.url}", f"  Key  {known.dev_key}", ""):
        console.print(line, soft_wrap=True)
    console.print(f"  Try  {curl_line(settings.url, known.dev_key)}", soft_wrap=True)


def _pull(home: Home) -> None:
    with pull_progress(console) as progress:
        puller = Puller(ModelStore(home.models), load_catalog(), progress)
        pulled = list(puller.pull_defaults(large=wants_large(os.environ)))
    for model in pulled:
        console.print(f"{model.manifest.name} is in {model.path}", soft_wrap=True)
