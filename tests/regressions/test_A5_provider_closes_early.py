"""A5, the gateway's part: a provider closes after 40 of 60 tokens: 40 tokens, an error event, 40 billed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.fake_provider import Turn, fake_provider
from tests.support.plain_gateway import catalog, plain_gateway
from tests.support.waiting import eventually


async def forty(turn: Turn) -> None:
    await turn.words(40)
    turn.cut()


async def test_forty_tokens_then_an_error_event(nats_url: str, tmp_path: Path) -> None:
    async with (
        fake_provider(forty) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider))) as plain,
    ):
        response = await plain.ask(stream=True, max_tokens=60)
        await eventually(lambda: len(plain.rows) == 1)
    *chunks, last = [json.loads(event[6:]) for event in response.text.split("\n\n") if event]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "".join(f"{number} " for number in range(40))
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert last["error"]["code"] == "upstream_error"
    assert len(provider.asked) == 1
    assert (plain.rows[0].outcome, plain.rows[0].usage.completion_tokens) == ("error", 40)
