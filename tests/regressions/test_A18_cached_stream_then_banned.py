"""A18: a cached streamed answer is replayed as chunks without a model; then a rule that bans it blocks it."""

from __future__ import annotations

import json
from pathlib import Path

from baton_common.nats_bus import NatsBus
from baton_output_guardrails.config import OutputConfig
from tests.support.fake_engine import FakeEngine
from tests.support.fake_provider import Turn, fake_provider
from tests.support.plain_gateway import catalog
from tests.support.scripted_embedder import scripted_embedder
from tests.support.whole_relay import whole_relay

BANNED = "forbidden fruit"


async def fruit(turn: Turn) -> None:
    for piece in ("An apple is a for", "bidden fr", "uit."):
        await turn.delta(content=piece)
    await turn.done(completion=3)


def said(text: str) -> str:
    events = [json.loads(event[6:]) for event in text.split("\n\n") if event.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in events if event.get("choices")]
    return "".join(delta.get("content", "") for delta in deltas)


async def test_replayed_as_chunks_then_blocked(nats_url: str, tmp_path: Path) -> None:
    async with fake_provider(fruit) as provider:
        (tmp_path / "catalog.toml").write_text(catalog(("far", provider)))
        async with whole_relay(nats_url, tmp_path, FakeEngine()) as relay:
            asked = {"model": "far", "stream": True, "temperature": 0}
            first = await relay.ask(**asked)
            again = await relay.ask(**asked)
            await relay.run_guard(OutputConfig.model_validate({"deny": {"phrases": [BANNED]}}))
            blocked = await relay.ask(**asked)
    assert said(first.text) == said(again.text) == "An apple is a forbidden fruit."
    assert again.headers["x-baton-cache"] == "exact"
    assert again.text.endswith("data: [DONE]\n\n")
    assert blocked.headers["x-baton-cache"] == "exact"
    assert "forb" not in said(blocked.text)
    assert '"finish_reason":"content_filter"' in blocked.text
    assert len(provider.asked) == 1


async def test_the_answer_to_another_phrasing_too(nats_url: str, tmp_path: Path) -> None:
    embedders = await NatsBus.connect(nats_url, name="embedder")
    async with fake_provider(fruit) as provider, scripted_embedder(embedders):
        (tmp_path / "catalog.toml").write_text(catalog(("far", provider), more="[cache]\nsemantic = true\n"))
        async with whole_relay(nats_url, tmp_path, FakeEngine()) as relay:
            asked = {"model": "far", "stream": True, "temperature": 0, "retrieval": "off"}
            await relay.ask("What is an apple called?", **asked)
            again = await relay.ask("Please, what is an apple called?", **asked)
            await relay.run_guard(OutputConfig.model_validate({"deny": {"phrases": [BANNED]}}))
            blocked = await relay.ask("Please, what is an apple called?", **asked)
    await embedders.close()
    assert said(again.text) == "An apple is a forbidden fruit."
    assert [each.headers["x-baton-cache"] for each in (again, blocked)] == ["semantic", "semantic"]
    assert "forb" not in said(blocked.text)
    assert len(provider.asked) == 1
