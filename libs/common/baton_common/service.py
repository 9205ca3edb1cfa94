"""Starting and ending a process: settings, logs, bus, node, signals, drain.

A service's `__main__` is one call of `run_service` with a function that wires its actors.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import uvloop

from baton_common.errors import BusError
from baton_common.logs import configure_logging
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_common.settings import ServiceSettings
from baton_contracts.permissions import inbox_prefix
from baton_contracts.subjects import Service

log = logging.getLogger(__name__)

Wire = Callable[[Node, NatsBus], AbstractAsyncContextManager[None]]
"""Builds the actors and yields once everything is there; after the yield it frees what it opened. The node
becomes ready between the two."""


BOOKKEEPING_NICENESS = 5
"""On a machine whose cores are all busy, what nobody waits for yields to what somebody waits for."""


def run_service(
    service: Service, settings: ServiceSettings, wire: Wire, *, is_bookkeeping: bool = False
) -> None:
    """Runs until SIGTERM or SIGINT, then drains. A signal during the start, or a second one, ends at once.
    Does not return from a clean end: threads of libraries are not waited for, there is nothing left to do."""
    configure_logging(service, settings.log_format, settings.log_level)
    if is_bookkeeping and hasattr(os, "nice"):
        os.nice(BOOKKEEPING_NICENESS)
    try:
        uvloop.run(_serve(service, settings, wire))
    except BusError as error:
        sys.stderr.write(f"{service}: {error}\n")
        raise SystemExit(1) from None


async def _serve(service: Service, settings: ServiceSettings, wire: Wire) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stopping)
    leaving = asyncio.create_task(_leave_unready(stopping))
    user = settings.nats_user
    bus = await NatsBus.connect(
        settings.nats_url,
        name=service,
        user=user,
        password=settings.nats_password.get_secret_value(),
        inbox_prefix=inbox_prefix(user or service),
    )
    node = Node(bus, service)
    try:
        await node.start()
        async with wire(node, bus):
            leaving.cancel()
            await node.become_ready()
            gc.collect()
            gc.freeze()  # what was loaded stays: no collection walks it again in the middle of a request
            if settings.instance_file:
                settings.instance_file.write_text(node.instance, encoding="ascii")
            log.info("%s is ready", node.instance)
            await stopping.wait()
            log.info("draining %d requests", node.num_held)
            await node.drain(settings.drain_seconds)
        await node.stop()
    finally:
        await bus.close()
    _leave()


async def _leave_unready(stopping: asyncio.Event) -> None:
    """A process that is still waiting for its bus or loading its model holds nothing: it just ends."""
    await stopping.wait()
    log.info("stopped before it was ready")
    _leave()


def _leave() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _on_signal(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        sys.exit(1)
    stopping.set()
