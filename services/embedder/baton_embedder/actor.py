"""The inbox: `EmbedQuery` in, `EmbedReply` out."""

from __future__ import annotations

from baton_common.node import Node
from baton_common.responder import Responder, ResponderLimits
from baton_contracts import subjects
from baton_contracts.queries import EmbedQuery, EmbedReply
from baton_embedder.batching import Batcher
from baton_embedder.encoder import Terms
from baton_embedder.settings import Settings


def embed_responder(
    node: Node, settings: Settings, batcher: Batcher, model: str
) -> Responder[EmbedQuery, EmbedReply]:
    async def answer(_request_id: str, query: EmbedQuery) -> EmbedReply:
        terms = Terms(query.whole, query.first)
        embedded = await (
            batcher.embed_ids(query.token_ids, terms)
            if query.token_ids
            else batcher.embed(query.texts, terms)
        )
        return EmbedReply(model=model, vectors=embedded.vectors, prompt_tokens=embedded.prompt_tokens)

    limits = ResponderLimits(
        concurrency=settings.embedder_concurrency,
        mailbox=settings.embedder_waiting,
        answer_seconds=settings.embedder_answer_seconds,
    )
    return Responder(
        node, subject=subjects.EMBED_ALL, query=EmbedQuery, reply=EmbedReply, answer=answer, limits=limits
    )
