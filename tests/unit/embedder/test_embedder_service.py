"""The embedder on the bus, with the real MiniLM weights: known vectors, unit length, cut texts, errors."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import EmbedQuery, EmbedReply
from baton_embedder.settings import Settings
from baton_embedder.wiring import wire

pytestmark = pytest.mark.real_weights


class Asker:
    def __init__(self, bus: MemoryBus, node: Node) -> None:
        self._bus = bus
        self.node = node

    async def send(self, payload: bytes) -> EmbedReply:
        subject = subjects.embed(new_request_id())
        return EmbedReply.decode(await self._bus.request(subject, payload, timeout=20))

    async def embed(self, *texts: str) -> EmbedReply:
        return await self.send(EmbedQuery(texts=texts).encode())


@pytest.fixture
async def asker() -> AsyncIterator[Asker]:
    bus = MemoryBus()
    node = Node(bus, "embedder")
    await node.start()
    async with wire(Settings(embedder_concurrency=2, embedder_waiting=1))(node, bus):  # pyright: ignore[reportArgumentType]
        await node.become_ready()
        yield Asker(bus, node)
        await node.drain(5)
    await node.stop()


def _dot(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_vectors_are_those_of_the_reference_implementation(asker: Asker) -> None:
    """Expected: sentence-transformers 6.2 on the same weights."""
    reply = await asker.embed(
        "Why is my API returning a 503?", "The queue is full, so the server refuses.", "Bananas are yellow."
    )
    assert reply.error is None
    assert reply.model == "all-MiniLM-L6-v2"
    heads = [vector[:4] for vector in reply.vectors]
    assert heads[0] == pytest.approx((-0.04056, 0.04118, 0.01187, -0.0179), abs=2e-5)
    assert heads[1] == pytest.approx((0.00949, -0.05576, -0.02898, -0.00513), abs=2e-5)
    assert heads[2] == pytest.approx((-0.02208, 0.00374, 0.02748, 0.01005), abs=2e-5)
    assert _dot(reply.vectors[0], reply.vectors[1]) == pytest.approx(0.24459, abs=1e-4)
    assert all(len(vector) == 384 for vector in reply.vectors)
    assert all(math.hypot(*vector) == pytest.approx(1, abs=1e-4) for vector in reply.vectors)


async def test_a_text_has_the_same_vector_alone_and_beside_a_longer_one(asker: Asker) -> None:
    alone = (await asker.embed("short")).vectors[0]
    beside = (await asker.embed("short", "a much longer sentence " * 20)).vectors[0]
    assert beside == pytest.approx(alone, abs=1e-5)


async def test_texts_are_cut_at_256_tokens_and_an_empty_one_is_a_vector_too(asker: Asker) -> None:
    long = await asker.embed("word " * 400, "word " * 4000)
    assert long.vectors[0] == pytest.approx(long.vectors[1], abs=1e-5)
    assert long.prompt_tokens == 512
    empty = await asker.embed("")
    assert math.hypot(*empty.vectors[0]) == pytest.approx(1, abs=1e-4)


async def test_a_text_that_is_too_long_is_refused_where_it_must_be_whole(asker: Asker) -> None:
    """254 words of one token each, and the two marks: 256."""
    fits = EmbedQuery(texts=("word " * 254,), whole=True)
    assert (await asker.send(fits.encode())).prompt_tokens == 256
    ids = tuple([2773] * 255)  # "word", in BERT's vocabulary
    for query in (
        EmbedQuery(texts=("short", "word " * 255), whole=True, first=40),
        EmbedQuery(texts=("short", "w" * 20_000), whole=True, first=40),
        EmbedQuery(token_ids=((7592,), ids), whole=True, first=40),
    ):
        error = (await asker.send(query.encode())).error
        assert error
        assert (error.code, error.param) == ("context_length_exceeded", "input")
        assert error.message.startswith(
            "input[41] is longer than the model's context length: all-MiniLM-L6-v2"
        )


@pytest.mark.parametrize("whole", [True, False])
async def test_blanks_however_many_make_no_text_long(asker: Asker, *, whole: bool) -> None:
    """Nor do they push what stands behind them out of it: "hello", "world" and the two marks."""
    plain = await asker.embed("hello world", "")
    padded = f"{' ' * 20_000}hello{chr(10) * 20_000}world"
    blank = await asker.send(EmbedQuery(texts=(padded, "\t " * 10_000), whole=whole).encode())
    assert blank.error is None
    assert (blank.vectors, blank.prompt_tokens) == (plain.vectors, 4 + 2)
    within = await asker.send(EmbedQuery(texts=(f"{' ' * 20_000}{'word ' * 255}",), whole=True).encode())
    assert within.error
    assert within.error.code == "context_length_exceeded"


async def test_ids_of_its_own_tokenizer_give_the_vector_of_their_text(asker: Asker) -> None:
    """7592 and 2088 are "hello" and "world" in BERT's vocabulary of 30,522."""
    texts = await asker.embed("hello world")
    ids = await asker.send(EmbedQuery(token_ids=((7592, 2088),)).encode())
    assert (ids.vectors, ids.prompt_tokens) == (texts.vectors, 4)
    foreign = await asker.send(EmbedQuery(token_ids=((7592,), (30_522,))).encode())
    assert foreign.error
    assert (foreign.error.code, foreign.error.param, foreign.error.stop) == (
        "invalid_value",
        "input",
        "embedder",
    )
    assert "input[1]: 30522 is no token of all-MiniLM-L6-v2" in foreign.error.message
    later = await asker.send(EmbedQuery(token_ids=((30_522,),), first=256).encode())
    assert later.error
    assert later.error.message.startswith("input[256]: ")


async def test_the_lease_says_what_is_served(asker: Asker) -> None:
    assert asker.node.embeds
    assert (asker.node.embeds.name, asker.node.embeds.dimensions) == ("all-MiniLM-L6-v2", 384)


async def test_bad_payloads_and_too_many_questions_are_errors_in_the_reply(asker: Asker) -> None:
    bad = (await asker.send(b'{"texts": [7]}')).error
    assert bad is not None
    assert (bad.code, bad.stop) == ("invalid_request", "embedder")
    replies = await asyncio.gather(*(asker.embed(f"question {number}") for number in range(6)))
    errors = [reply.error.code for reply in replies if reply.error]
    assert errors == ["stop_busy"] * 3
    assert sum(len(reply.vectors) for reply in replies) == 3


async def test_the_largest_answer_fits_into_one_message_of_a_megabyte(asker: Asker) -> None:
    reply = await asker.embed(*(f"text {number}" for number in range(256)))
    assert len(reply.vectors) == 256
    assert len(reply.encode()) < 1_048_576 - 8192
