"""A6: a silent provider, two retries allowed, the client leaves: the attempt is cancelled, no new one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from baton_common.bus import BusMessage
from baton_contracts import subjects
from baton_contracts.spans import SpanBatch
from tests.support.fake_provider import FakeProvider, Turn, fake_provider
from tests.support.plain_gateway import PlainGateway, catalog, plain_gateway
from tests.support.waiting import eventually


async def mute(turn: Turn) -> None:
    await turn.asked.closed.wait()


async def refusing(turn: Turn) -> None:
    await turn.refuse(500, retry_after="3")


async def ask_and_leave(plain: PlainGateway, provider: FakeProvider) -> None:
    asking = asyncio.create_task(plain.ask(stream=True))
    await eventually(lambda: len(provider.asked) == 1)
    asking.cancel()
    await asyncio.wait([asking])


async def test_the_connection_is_closed_and_nothing_is_tried_again(nats_url: str, tmp_path: Path) -> None:
    async with (
        fake_provider(mute) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider)), max_attempts=3) as plain,
    ):
        await ask_and_leave(plain, provider)
        async with asyncio.timeout(3):
            await provider.asked[0].closed.wait()
    assert len(provider.asked) == 1
    assert plain.rows == []


async def test_a_client_that_leaves_between_two_tries_gets_no_other(nats_url: str, tmp_path: Path) -> None:
    async with (
        fake_provider(refusing) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider)), max_attempts=3) as plain,
    ):
        over = asyncio.Event()

        def note(message: BusMessage) -> None:
            if any(span.service == "llm_gateway" for span in SpanBatch.decode(message.payload).spans):
                over.set()

        await plain.bus.subscribe(subjects.TRACE_ALL, note)
        await ask_and_leave(plain, provider)
        async with asyncio.timeout(20):
            await over.wait()
    assert len(provider.asked) == 1
