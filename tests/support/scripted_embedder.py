"""An embedder of two-figure vectors: the direction of a text is its length in degrees."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from baton_common.bus import Bus
from baton_common.errors import RequestFailed
from baton_common.node import Node
from baton_common.responder import Responder
from baton_contracts import subjects
from baton_contracts.heartbeats import EmbeddingModel
from baton_contracts.queries import EmbedQuery, EmbedReply

MODEL = "degrees-3d"


def direction(degrees: int) -> tuple[float, float, float]:
    """A unit vector; its third figure is 0.6 for all."""
    angle = math.radians(degrees)
    return (0.8 * math.cos(angle), 0.8 * math.sin(angle), 0.6)


class ScriptedEmbedder:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.queries: list[EmbedQuery] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = asyncio.Event()

    async def answer(self, _request_id: str, query: EmbedQuery) -> EmbedReply:
        self.queries.append(query)
        self.asked.set()
        await self.may_answer.wait()
        if any(999 in ids for ids in query.token_ids):
            raise RequestFailed.because("invalid_value", "input[0]: 999 is no token.", param="input")
        sizes = [len(item) for item in query.texts or query.token_ids]
        vectors = tuple(direction(size) for size in sizes)
        return EmbedReply(model=MODEL, vectors=vectors, prompt_tokens=sum(sizes))


@asynccontextmanager
async def scripted_embedder(bus: Bus) -> AsyncGenerator[ScriptedEmbedder, None]:
    node = Node(bus, "embedder")
    node.embeds = EmbeddingModel(name=MODEL, dimensions=3, max_tokens=100)
    embedder = ScriptedEmbedder(node)
    node.add(
        Responder(
            node, subject=subjects.EMBED_ALL, query=EmbedQuery, reply=EmbedReply, answer=embedder.answer
        )
    )
    await node.start()
    await node.become_ready()
    try:
        yield embedder
    finally:
        embedder.may_answer.set()
        await node.drain(2)
        await node.stop()
