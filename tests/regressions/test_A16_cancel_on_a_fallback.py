"""A16: a cancel after 26 tokens on a fallback model: one row, 26 tokens, cancelled, the fallback's price."""

from __future__ import annotations

import asyncio
from pathlib import Path

from baton_common.catalog import catalog_of
from tests.support.fake_provider import Turn, fake_provider
from tests.support.plain_gateway import catalog, plain_gateway
from tests.support.waiting import eventually

MORE = """
[models.far]
fallbacks = ["near"]
price = { input = "10", output = "100" }
[models.near]
price = { input = "0", output = "2" }
"""


async def down(turn: Turn) -> None:
    await turn.refuse(500)


async def endless(turn: Turn) -> None:
    await turn.words(26)
    await turn.asked.closed.wait()


async def test_one_row_at_the_fallbacks_price(nats_url: str, tmp_path: Path) -> None:
    async with fake_provider(down) as first, fake_provider(endless) as second:
        text = catalog(("far", first), ("near", second), more=MORE)
        async with plain_gateway(nats_url, tmp_path, text, max_attempts=1) as plain:
            body = {"model": "far", "messages": [{"role": "user", "content": "Count."}], "stream": True}
            async with plain.client.stream("POST", "/v1/chat/completions", json=body) as response:
                heard = ""
                async for piece in response.aiter_text():
                    heard += piece
                    if "25 " in heard:
                        break
            async with asyncio.timeout(2):
                await second.asked[0].closed.wait()
            await eventually(lambda: len(plain.rows) == 1)
    row = plain.rows[0]
    assert (row.model, row.replica, row.outcome) == ("near", "near/0", "cancelled")
    assert row.usage.completion_tokens == 26
    price = catalog_of(tmp_path).price_of(row.model)
    assert price.cost(row.usage) == 26 * 2_000_000
