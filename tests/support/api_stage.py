"""Every operation of the HTTP API with something real behind it: the whole relay, the books, the trace
console and the batches in the test's own event loop; the engine and the embedder are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from baton_common.nats_bus import NatsBus
from baton_trace_console.__main__ import wire as wire_console
from baton_trace_console.settings import Settings as ConsoleSettings
from tests.support.books import running_books
from tests.support.fake_engine import FakeEngine
from tests.support.scripted_answer import Script
from tests.support.scripted_embedder import MODEL, scripted_embedder
from tests.support.whole_relay import WholeRelay, running_service, whole_relay


@asynccontextmanager
async def api_stage(
    nats_url: str, home: Path, engine: FakeEngine | None = None
) -> AsyncGenerator[WholeRelay, None]:
    """Needs a NATS server of its own."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running_books(nats_url, home))
        console = wire_console(ConsoleSettings(home=home))
        await stack.enter_async_context(running_service(nats_url, "trace_console", console))
        started = whole_relay(nats_url, home, engine or FakeEngine(Script()), vector_size=3)
        relay = await stack.enter_async_context(started)
        bus = await NatsBus.connect(nats_url, name="embedder")
        stack.push_async_callback(bus.close)
        await stack.enter_async_context(scripted_embedder(bus))
        await _until_listed(relay, MODEL)
        yield relay


async def _until_listed(relay: WholeRelay, model: str) -> None:
    """The edge has heard of the embedder."""
    async with asyncio.timeout(10):
        while (await relay.client.get(f"/v1/models/{model}")).status_code != 200:
            pass
