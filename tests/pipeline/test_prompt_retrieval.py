"""Retrieval over real NATS with the real embedder and the seed documents: the right document, or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import EmbedQuery, EmbedReply
from baton_embedder.settings import Settings as EmbedderSettings
from baton_embedder.wiring import wire as wire_embedder
from tests.support.prompt_stage import PromptStage, open_prompt_stage, settings_for, sources
from tests.support.retrieval_questions import (
    ABOUT_DOCUMENTS,
    ABOUT_SOMETHING_ELSE,
    HELD_OUT_DOCUMENTS,
    HELD_OUT_ELSE,
)

pytestmark = pytest.mark.real_weights

Connect = Callable[[], Awaitable[NatsBus]]


@pytest.fixture
async def connect(nats_url: str) -> AsyncGenerator[Connect, None]:
    buses: list[NatsBus] = []

    async def one_more() -> NatsBus:
        buses.append(await NatsBus.connect(nats_url, name="test"))
        return buses[-1]

    yield one_more
    for bus in buses:
        await bus.close()


@asynccontextmanager
async def _real_embedder(bus: NatsBus) -> AsyncGenerator[Node, None]:
    node = Node(bus, "embedder")
    await node.start()
    async with wire_embedder(EmbedderSettings())(node, bus):
        await node.become_ready()
        yield node
        await node.drain(2)
    await node.stop()


@asynccontextmanager
async def _stage(connect: Connect, home: Path) -> AsyncGenerator[PromptStage, None]:
    """Seed documents in, with their vectors. The wait for a vector is generous: tests share the machine."""
    async with _real_embedder(await connect()):
        settings = settings_for(home, seed_documents=True, embed_seconds=10)
        async with open_prompt_stage(settings, connect) as stage:
            # An ingest answers when every chunk has its vector.
            await stage.ingest("own.md", "# Own\n\nnothing in common", tenant="somebody else")
            yield stage


async def test_questions_find_their_document_and_small_talk_finds_none(
    connect: Connect, tmp_path: Path
) -> None:
    async with _stage(connect, tmp_path) as stage:
        handoff = await stage.ask("Why is my API returning a 503?")
        assert sources(handoff)[0] == "error-503.md"
        assert "Retry-After" in handoff.prompt.messages[-1].text
        search = await stage.span(handoff, "search")
        assert float(str(search.attributes["best_cosine"])) > 0.6

        found = {question: sources(await stage.ask(question)) for question, _ in ABOUT_DOCUMENTS}
        assert all(expected in found[question] for question, expected in ABOUT_DOCUMENTS), found
        num_first = sum(found[question][0] == expected for question, expected in ABOUT_DOCUMENTS)
        assert num_first >= 19  # of 20, measured: 20
        for question in ABOUT_SOMETHING_ELSE:
            assert sources(await stage.ask(question)) == [], question

        held_out = [
            (sources(await stage.ask(question)), expected) for question, expected in HELD_OUT_DOCUMENTS
        ]
        assert sum(expected in names for names, expected in held_out) >= 9  # of 12, measured: 9
        for question in HELD_OUT_ELSE:
            assert sources(await stage.ask(question)) == [], question


async def test_own_documents_are_found_and_other_tenants_are_not(connect: Connect, tmp_path: Path) -> None:
    async with _stage(connect, tmp_path) as stage:
        page = (
            "# Office rules\n\n## Parking\n\nThe blue garage in Mill Lane is free after six in the evening.\n"
        )
        reply = await stage.ingest("rules.md", page, tenant="acme")
        assert (reply.added, reply.error) == (1, None)
        question = "Where can I park my car in the evening?"
        handoff = await stage.ask(question, tenant="acme")
        assert sources(handoff)[0] == "rules.md"
        assert "rules.md" not in sources(await stage.ask(question, tenant="other"))
        assert "rules.md" not in sources(await stage.ask(question, tenant="other", retrieval="on"))


async def test_the_embedder_may_come_go_and_come_back(connect: Connect, tmp_path: Path) -> None:
    question = "Why is my API returning a 503?"
    async with open_prompt_stage(
        settings_for(tmp_path, seed_documents=True, embed_seconds=10), connect
    ) as stage:
        handoff = await stage.ask(question)
        assert sources(handoff)[0] == "error-503.md"
        assert (await stage.span(handoff, "embed")).attributes["embedder"] == "missing"
        async with _real_embedder(await connect()):
            await stage.ingest("own.md", "# Own\n\nnothing in common")
            handoff = await stage.ask(question)
            assert (await stage.span(handoff, "embed")).attributes["model"] == "all-MiniLM-L6-v2"
            assert float(str((await stage.span(handoff, "search")).attributes["best_cosine"])) > 0.6
        handoff = await stage.ask(question)
        assert sources(handoff)[0] == "error-503.md"
        assert (await stage.span(handoff, "embed")).attributes["embedder"] == "missing"


async def test_many_questions_at_once_are_all_embedded(connect: Connect) -> None:
    bus = await connect()
    async with _real_embedder(await connect()):
        payload = EmbedQuery(texts=("Why is my API returning a 503?",)).encode()

        async def one() -> EmbedReply:
            return EmbedReply.decode(await bus.request(subjects.embed(new_request_id()), payload, timeout=20))

        replies = await asyncio.gather(*(one() for _ in range(32)))
        assert all(reply.vectors == replies[0].vectors for reply in replies)
        assert replies[0].vectors[0][:2] == pytest.approx((-0.040563, 0.041176), abs=1e-5)
