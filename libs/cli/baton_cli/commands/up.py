"""`baton up`: checks what can be checked beforehand, fetches the models, then supervises."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from typing import Annotated

import typer

from baton_cli.errors import AlreadyRunning, CliError, StartFailed
from baton_cli.file_lock import LockHeld, locked
from baton_cli.models.progress import pull_progress
from baton_cli.models.pull import Puller
from baton_cli.models.store import ModelStore
from baton_cli.terminal import console
from baton_cli.up.console import PatientConsole, UpConsole
from baton_cli.up.plan import LocalModel
from baton_cli.up.ports import is_free
from baton_cli.up.settings import SERVICES, UpSettings, read_settings
from baton_cli.up.supervisor import Supervisor
from baton_common.catalog import load_catalog


def up(
    no_large: Annotated[
        bool, typer.Option("--no-large", help="Without the larger model (BATON_LARGE_MODEL=off).")
    ] = False,
    model: Annotated[list[str] | None, typer.Option(help="Serve this pulled model too (repeatable).")] = None,
    replicas: Annotated[
        list[str] | None,
        typer.Option(
            help="Engines for every model (2), or for one (smollm2-135m=2); they share the cores. Repeatable."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Start this service, and only those named so.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="Leave this service out (repeatable).")] = None,
    gateway: Annotated[
        bool,
        typer.Option("--gateway", help="A plain gateway to the servers of the catalog; no models run here."),
    ] = False,
) -> None:
    """Start the whole system and keep it running; Ctrl-C stops it."""
    settings = read_settings(
        os.environ,
        large=not no_large,
        only=tuple(only or ()),
        without=tuple(without or ()),
        models=tuple(model or ()),
        plain_gateway=gateway,
        replicas=tuple(replicas or ()),
    )
    settings.home.prepare()
    try:
        with locked(settings.home.lock):
            _run(settings)
    except LockHeld as held:
        raise AlreadyRunning(str(settings.home.root), held.pid) from None
    except KeyboardInterrupt:
        console.print("Stopped before anything was started; what was fetched is kept.")


def _run(settings: UpSettings) -> None:
    check_installed(settings)
    check_port(settings)
    models = _models(settings)
    shown = UpConsole(PatientConsole(highlight=False), settings.home.logs)
    try:
        asyncio.run(Supervisor(settings, models, shown, os.environ).run())
    finally:
        shown.close()


def check_installed(settings: UpSettings) -> None:
    missing = [
        name
        for name in SERVICES
        if name in settings.services and not importlib.util.find_spec(f"baton_{name}")
    ]
    if missing:
        raise StartFailed(", ".join(missing), "not installed in this environment; `make install` installs it")


def check_port(settings: UpSettings) -> None:
    if "edge_api" not in settings.services:
        return
    try:
        free = is_free(settings.host, settings.port)
    except OSError as error:
        raise CliError(f"BATON_HOST {settings.host}, port {settings.port}: {error.strerror}.") from error
    if not free:
        raise CliError(
            f"Port {settings.port} is in use by another program. Stop it, or choose another port: "
            "BATON_PORT=8090 make up"
        )


def _models(settings: UpSettings) -> tuple[LocalModel, ...]:
    """Fetches what is missing; none if no engine is to run."""
    if "engine_worker" not in settings.services:
        return ()
    store = ModelStore(settings.home.models)
    with pull_progress(console) as progress:
        puller = Puller(store, load_catalog(), progress)
        installed = [*puller.pull_defaults(large=settings.large_model)]
    for name in settings.extra_models:
        found = store.find(name)
        if found is None:
            raise CliError(f"Model {name!r} is not here: baton models pull {name}")
        installed.append(found)
    _check_replicas(settings, {model.manifest.name for model in installed})
    return tuple(
        {model.manifest.name: LocalModel(model.manifest.name, model.path) for model in installed}.values()
    )


def _check_replicas(settings: UpSettings, served: set[str]) -> None:
    for name in settings.replicas:
        if name and name not in served:
            raise CliError(f"--replicas {name}=…: served here are {', '.join(sorted(served))}.")
