"""A responder answers typed questions, within bounds, and every question gets a reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from baton_common.errors import MessageTooLarge, NoResponders, RequestFailed
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_common.responder import Responder, ResponderLimits
from baton_contracts import subjects
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import EmbedQuery, EmbedReply

Answer = Callable[[str, EmbedQuery], Awaitable[EmbedReply]]


class NarrowBus(MemoryBus):
    """Refuses answers of more than a thousand bytes, as NATS refuses what is over its payload limit."""

    async def publish(self, subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        if len(payload) > 1000:
            raise MessageTooLarge(subject)
        await super().publish(subject, payload, reply=reply)


class Bench:
    """One node with one responder on the memory bus."""

    def __init__(self) -> None:
        self.bus = NarrowBus()
        self.node = Node(self.bus, "embedder")

    async def serve(self, answer: Answer, limits: ResponderLimits | None = None) -> None:
        self.node.add(
            Responder(
                self.node,
                subject=subjects.EMBED_ALL,
                query=EmbedQuery,
                reply=EmbedReply,
                answer=answer,
                limits=limits,
            )
        )
        await self.node.start()
        await self.node.become_ready()

    async def held(self, count: int) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        assert self.node.num_held == count

    async def ask(self, payload: bytes | None = None) -> EmbedReply:
        payload = EmbedQuery(texts=("a",)).encode() if payload is None else payload
        return EmbedReply.decode(await self.bus.request(subjects.embed(new_request_id()), payload, timeout=5))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.node.stop()


async def test_the_reply_is_what_the_answer_returned(bench: Bench) -> None:
    async def answer(request_id: str, query: EmbedQuery) -> EmbedReply:
        return EmbedReply(model=f"{query.texts[0]}-{len(request_id)}")

    await bench.serve(answer)
    assert (await bench.ask()).model == "a-32"


@pytest.mark.parametrize("payload", [b"", b"{", b'{"texts": []}', b"\xff\xfe", b'{"texts": "x"}'])
async def test_a_bad_payload_is_an_error_in_the_reply(bench: Bench, payload: bytes) -> None:
    async def answer(_id: str, _query: EmbedQuery) -> EmbedReply:
        raise AssertionError("not reached")

    await bench.serve(answer)
    error = (await bench.ask(payload)).error
    assert error is not None
    assert (error.code, error.stop) == ("invalid_request", "embedder")


async def test_request_failed_goes_to_the_asker_and_other_errors_become_stop_failed(bench: Bench) -> None:
    failures: list[Exception] = [
        RequestFailed.because("request_too_large", "Too much."),
        ValueError("secret detail"),
    ]

    async def answer(_id: str, _query: EmbedQuery) -> EmbedReply:
        raise failures.pop(0)

    await bench.serve(answer)
    first, second = (await bench.ask()).error, (await bench.ask()).error
    assert first is not None
    assert (first.code, first.message, first.stop) == ("request_too_large", "Too much.", "embedder")
    assert second is not None
    assert second.code == "stop_failed"
    assert "secret detail" not in second.message


async def test_more_than_the_bound_is_told_busy_at_once(bench: Bench) -> None:
    gate, at_work = asyncio.Event(), 0

    async def answer(_id: str, _query: EmbedQuery) -> EmbedReply:
        nonlocal at_work
        at_work += 1
        await gate.wait()
        return EmbedReply(model="m")

    await bench.serve(answer, ResponderLimits(concurrency=1, mailbox=1))
    held = [asyncio.create_task(bench.ask()) for _ in range(2)]
    await bench.held(2)
    error = (await bench.ask()).error
    assert error is not None
    assert (error.code, error.retry_after_seconds) == ("stop_busy", 1)
    assert at_work == 1
    gate.set()
    assert [reply.model for reply in await asyncio.gather(*held)] == ["m", "m"]
    assert bench.node.num_held == 0


async def test_an_answer_that_takes_too_long_is_an_error(bench: Bench) -> None:
    async def answer(_id: str, _query: EmbedQuery) -> EmbedReply:
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    await bench.serve(answer, ResponderLimits(answer_seconds=0.01))
    error = (await bench.ask()).error
    assert error is not None
    assert error.code == "deadline_exceeded"


async def test_drain_answers_what_is_held_and_takes_nothing_new(bench: Bench) -> None:
    gate = asyncio.Event()

    async def answer(_id: str, _query: EmbedQuery) -> EmbedReply:
        await gate.wait()
        return EmbedReply(model="held")

    await bench.serve(answer)
    held = asyncio.create_task(bench.ask())
    await bench.held(1)
    drained = asyncio.create_task(bench.node.drain(5))
    for _ in range(10):
        await asyncio.sleep(0)
    with pytest.raises(NoResponders):
        await bench.ask()
    assert not drained.done()
    gate.set()
    await drained
    assert (await held).model == "held"


async def test_an_answer_too_large_for_the_bus_is_an_error_and_not_silence(bench: Bench) -> None:
    async def answer(_id: str, _query: EmbedQuery) -> EmbedReply:
        return EmbedReply(model="m" * 2000)

    await bench.serve(answer)
    error = (await bench.ask()).error
    assert error is not None
    assert error.code == "request_too_large"


async def test_a_question_that_wants_no_answer_gets_none_and_the_next_one_is_answered(bench: Bench) -> None:
    async def answer(_id: str, query: EmbedQuery) -> EmbedReply:
        return EmbedReply(model=query.texts[0])

    await bench.serve(answer)
    await bench.bus.publish(subjects.embed(new_request_id()), EmbedQuery(texts=("x",)).encode())
    assert (await bench.ask()).model == "a"
