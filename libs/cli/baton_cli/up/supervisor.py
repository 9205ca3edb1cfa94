"""The supervisor of one copy of Baton: starts everything in order, keeps it running, stops it in reverse.

Its order of work reads in `_start`: bus → development key → services → readiness.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import time
from collections.abc import Mapping

from baton_cli.home import write_secret
from baton_cli.keys import new_key, open_key_book
from baton_cli.operator_bus import Operator
from baton_cli.up.banner import banner, model_without_replicas
from baton_cli.up.bus import is_routine, server_spec, wait_until_listening
from baton_cli.up.console import UpConsole
from baton_cli.up.nats_config import OPERATOR, new_passwords, render_nats_config
from baton_cli.up.plan import LocalModel, ProcessSpec, Secrets, plan_processes, service_environments
from baton_cli.up.ports import free_port
from baton_cli.up.ready import ReadinessProbe
from baton_cli.up.settings import UpSettings
from baton_cli.up.supervised import SupervisedProcess
from baton_common.catalog import catalog_of
from baton_common.vault import new_key as new_vault_key

_MODEL_SECONDS = 120.0
_SECOND_CTRL_C_SECONDS = 0.3
"""One Ctrl-C may arrive twice (from the terminal and from make): what comes sooner is still the first."""


class Supervisor:
    def __init__(
        self,
        settings: UpSettings,
        models: tuple[LocalModel, ...],
        console: UpConsole,
        environment: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._models = models
        self._console = console
        self._environment = environment
        self._processes: list[SupervisedProcess] = []
        self._keepers: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._stop_asked_at = 0.0

    async def run(self) -> None:
        """Until SIGINT, SIGTERM or SIGHUP. Raises StartFailed if the bus can't be started."""
        self._listen_to_signals()
        starting = asyncio.create_task(self._start())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopping
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await self._stop_everything()
            stopping.cancel()

    async def _start(self) -> None:
        started = time.monotonic()
        port = free_port()
        operator = self._write_secrets(port)
        self._launch(server_spec(self._settings.home, self._environment))
        async with self._console.waiting(f"nats-server on port {port}"):
            await wait_until_listening(port)
        key = await self._dev_key(operator)
        for spec in plan_processes(
            self._settings, self._models, operator.nats_url, self._secrets, self._environment
        ):
            self._launch(spec)
        await self._show_ready(key, started)

    def _write_secrets(self, port: int) -> Operator:
        passwords = new_passwords()
        self._secrets = Secrets(passwords, new_vault_key())
        home = self._settings.home
        config = render_nats_config(port=port, store=home.nats_store, passwords=passwords)
        write_secret(home.nats_config, config)
        operator = Operator(f"nats://127.0.0.1:{port}", OPERATOR, passwords[OPERATOR])
        write_secret(home.operator, operator.encode())
        for service, values in service_environments(self._settings, operator.nats_url, self._secrets).items():
            lines = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
            write_secret(home.environment_file(service), lines)
        return operator

    async def _dev_key(self, operator: Operator) -> str:
        file = self._settings.home.dev_key
        kept = file.read_text(encoding="ascii").strip() if file.is_file() else ""
        key = self._settings.dev_key or kept or new_key()
        async with open_key_book(operator) as book:
            await book.put_dev_key(key)
        if key != kept:
            write_secret(file, f"{key}\n")
        return key

    def _launch(self, spec: ProcessSpec) -> None:
        console = self._console
        is_bus = spec.name == "nats_server"
        process = SupervisedProcess(
            spec,
            output=lambda line: console.log(spec.name, line, quiet=is_bus and is_routine(line)),
            events=lambda line: console.say(f"{spec.name} {line}"),
            last_words=signal.SIGTERM if is_bus else signal.SIGKILL,  # the bus closes its files
        )
        self._processes.append(process)
        keeper = asyncio.create_task(process.keep_running(), name=spec.name)
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keeper_ended)

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        """A bug here must not leave a process without its keeper in silence."""
        if not keeper.cancelled() and (error := keeper.exception()):
            self._console.say(f"{keeper.get_name()} is no longer supervised: {error!r}")

    async def _show_ready(self, key: str, started: float) -> None:
        if "edge_api" not in self._settings.services:
            self._console.say("no edge_api here: nothing to wait for")
            return
        probe = ReadinessProbe(self._settings.url)
        try:
            async with self._console.waiting("all services", lambda: probe.last.detail):
                readiness = await probe.wait(enough=not self._settings.complete)
            if readiness.ready and self._models:
                await self._wait_for_models(probe, key)
        finally:
            await probe.close()
        model = "auto"
        # What is ready has read this very catalog, so it can be read.
        if self._settings.plain_gateway and readiness.ready:
            model = model_without_replicas(catalog_of(self._settings.home.root))
        for line in banner(self._settings.url, key, time.monotonic() - started, readiness, model):
            self._console.plain(line)

    async def _wait_for_models(self, probe: ReadinessProbe, key: str) -> None:
        names = [model.name for model in self._models]
        async with self._console.waiting("all models", lambda: ", ".join(probe.waiting_for)):
            late = await probe.wait_for_models(names, key, seconds=_MODEL_SECONDS)
        counts = {name: self._settings.num_replicas(name) for name in names}
        if not late and max(counts.values()) > 1:
            async with self._console.waiting("all replicas", lambda: ", ".join(probe.waiting_for)):
                late = await probe.wait_for_replicas(counts, seconds=_MODEL_SECONDS)
        if late:
            self._console.say(f"going on without {', '.join(late)}: still loading, or failing; see its log")

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if not self._stopping.is_set():
            self._stop_asked_at = now
            self._stopping.set()
            self._console.say("stopping (Ctrl-C again: at once)")
        elif number == signal.SIGINT and now - self._stop_asked_at > _SECOND_CTRL_C_SECONDS:
            self._console.say("killing everything")
            for process in self._processes:
                process.kill()

    async def _stop_everything(self) -> None:
        """Wave after wave, the last started first; the bus goes last."""
        self._stopping.set()
        waves = sorted({process.spec.wave for process in self._processes}, reverse=True)
        for wave in waves:
            members = [process for process in self._processes if process.spec.wave == wave]
            await asyncio.gather(*(process.stop() for process in members))
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if waves:
            self._console.say("everything has stopped")
