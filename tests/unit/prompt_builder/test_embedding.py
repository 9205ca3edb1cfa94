"""The embedder's answers are checked before they are believed."""

from __future__ import annotations

import pytest

from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import EmbedReply
from baton_prompt_builder.embedding import EmbedderClient, EmbeddingFailed

GOOD = EmbedReply(model="m", vectors=((0.6, 0.8), (1.0, 0.0)))


async def _ask(answer: bytes | None) -> tuple[tuple[float, ...], ...]:
    bus = MemoryBus()

    def reply(message: BusMessage) -> None:
        if answer is not None:
            spawn(bus.publish(message.reply, answer))

    await bus.subscribe(subjects.EMBED_ALL, reply, queue="embedder")
    client = EmbedderClient(bus, vector_size=2)
    return (await client.embed(new_request_id(), ["a", "b"], 0.05)).vectors


async def test_good_vectors_are_passed_on() -> None:
    assert await _ask(GOOD.encode()) == ((0.6, 0.8), (1.0, 0.0))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "slow"),
        (b"not json", "failed"),
        (EmbedReply(error=ErrorBody(code="stop_busy", message="full")).encode(), "stop_busy"),
        (EmbedReply(model="m", vectors=((0.6, 0.8),)).encode(), "wrong_size"),
        (EmbedReply(model="m", vectors=((1.0,), (1.0,))).encode(), "wrong_size"),
    ],
)
async def test_bad_answers_are_told_apart(answer: bytes | None, reason: str) -> None:
    with pytest.raises(EmbeddingFailed) as failed:
        await _ask(answer)
    assert failed.value.reason == reason


async def test_nobody_there_and_no_bus() -> None:
    bus = MemoryBus()
    with pytest.raises(EmbeddingFailed, match="missing"):
        await EmbedderClient(bus, 2).embed(new_request_id(), ["a"], 1)
    bus.online = False
    with pytest.raises(EmbeddingFailed, match="failed"):
        await EmbedderClient(bus, 2).embed(new_request_id(), ["a"], 1)
