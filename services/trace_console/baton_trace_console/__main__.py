"""Wiring of trace_console."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from baton_common.errors import BusError
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_common.responder import Responder
from baton_common.service import Wire, run_service
from baton_common.settings import load_settings
from baton_contracts import subjects
from baton_contracts.queries import ConsoleQuery, ConsoleReply
from baton_trace_console.actor import Console
from baton_trace_console.archive import Archive, ensure_archive
from baton_trace_console.pages import Pages
from baton_trace_console.settings import Settings

log = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0


def wire(settings: Settings) -> Wire:
    @asynccontextmanager
    async def wired(node: Node, bus: NatsBus) -> AsyncGenerator[None]:
        make_archive = functools.partial(
            ensure_archive,
            bus,
            max_age_seconds=settings.trace_days * 86_400,
            max_bytes=settings.trace_max_bytes,
        )
        await make_archive()
        node.supervise("the TRACE stream", lambda: _look_after(make_archive))
        console = Console(Archive(bus), Pages(), node.clock)
        node.add(
            Responder(
                node,
                subject=subjects.CONSOLE_ALL,
                query=ConsoleQuery,
                reply=ConsoleReply,
                answer=console.answer,
            )
        )
        yield

    return wired


async def _look_after(make_archive: Callable[[], Awaitable[None]]) -> None:
    """A server that comes back with an empty store gets its stream again."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            await make_archive()
        except BusError as error:
            log.debug("stream TRACE is away: %s", error)


def main() -> None:
    settings = load_settings(Settings)
    run_service("trace_console", settings, wire(settings), is_bookkeeping=True)


if __name__ == "__main__":
    main()
