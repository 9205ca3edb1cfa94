"""The semantic layer over HTTP: a tenant that wants it, one that doesn't, and an embedder that is away."""

from __future__ import annotations

from pathlib import Path

from baton_common.nats_bus import NatsBus
from tests.support.fake_provider import Turn, fake_provider
from tests.support.plain_gateway import catalog as catalog_with
from tests.support.plain_gateway import plain_gateway
from tests.support.scripted_embedder import scripted_embedder
from tests.support.waiting import eventually

WANTED = "[cache]\nsemantic = true\nsemantic_threshold = 0.95\n"
ASKED = "How do I reset my password?"
NEAR = "How can I reset my password?"


async def hello(turn: Turn) -> None:
    await turn.whole("Hello.")


async def test_another_phrasing_is_answered_without_a_model(nats_url: str, tmp_path: Path) -> None:
    async with fake_provider() as provider:

        async def counting(turn: Turn) -> None:
            await turn.whole(f"answer {len(provider.asked)}")

        provider.script = counting
        embedders = await NatsBus.connect(nats_url, name="embedder")
        async with (
            scripted_embedder(embedders) as embedder,
            plain_gateway(
                nats_url, tmp_path, catalog_with(("far", provider), more=WANTED), semantic_embed_seconds=10
            ) as plain,
        ):
            first = await plain.ask(content=ASKED, temperature=0)
            assert embedder.queries == []
            near = await plain.ask(content=NEAR, temperature=0)
            other = await plain.ask(content="How can I reset my username?", temperature=0)
            fresh = await plain.client.post(
                "/v1/chat/completions",
                json={"model": "far", "messages": [{"role": "user", "content": NEAR}], "temperature": 0},
                headers={"cache-control": "no-cache"},
            )
            await eventually(lambda: len(plain.rows) == 4)
        await embedders.close()
    assert first.headers["x-baton-cache"] == "none"
    assert near.headers["x-baton-cache"] == "semantic"
    assert near.headers["x-baton-cache-similarity"] == "1.000"
    assert near.json()["choices"][0]["message"]["content"] == "answer 1"
    assert [answer.headers["x-baton-cache"] for answer in (other, fresh)] == ["none", "none"]
    assert "x-baton-cache-similarity" not in other.headers
    assert len(provider.asked) == 3
    assert [query.texts for query in embedder.queries] == [(NEAR, ASKED)]
    assert sorted(row.outcome for row in plain.rows) == ["cache_hit", "finished", "finished", "finished"]


async def test_nobody_is_asked_for_a_tenant_that_did_not_opt_in(nats_url: str, tmp_path: Path) -> None:
    async with fake_provider(hello) as provider:
        embedders = await NatsBus.connect(nats_url, name="embedder")
        async with (
            scripted_embedder(embedders) as embedder,
            plain_gateway(nats_url, tmp_path, catalog_with(("far", provider))) as plain,
        ):
            for content in (ASKED, NEAR):
                answer = await plain.ask(content=content, temperature=0)
                assert answer.headers["x-baton-cache"] == "none"
        await embedders.close()
    assert embedder.queries == []
    assert len(provider.asked) == 2


async def test_without_an_embedder_it_is_a_miss_and_no_error(nats_url: str, tmp_path: Path) -> None:
    async with (
        fake_provider(hello) as provider,
        plain_gateway(nats_url, tmp_path, catalog_with(("far", provider), more=WANTED)) as plain,
    ):
        for content in (ASKED, NEAR):
            answer = await plain.ask(content=content, temperature=0)
            assert (answer.status_code, answer.headers["x-baton-cache"]) == (200, "none")
    assert len(provider.asked) == 2
