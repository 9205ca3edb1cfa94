"""Puts the process together: store, library, retriever, inboxes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from baton_common.bus import Bus
from baton_common.node import Node
from baton_common.service import Wire
from baton_prompt_builder.actor import PromptBuilder, ingest_responder, prompt_actor
from baton_prompt_builder.embedding import EmbedderClient
from baton_prompt_builder.library import Library, OpenStore
from baton_prompt_builder.ranking import Rule
from baton_prompt_builder.retrieval import Limits, Retriever
from baton_prompt_builder.seed import seed_documents
from baton_prompt_builder.settings import Settings
from baton_prompt_builder.stores.edge_store import EdgeStore
from baton_prompt_builder.stores.interface import DocumentStore


def wire(settings: Settings) -> Wire:
    def open_service(node: Node, bus: Bus) -> AbstractAsyncContextManager[None]:
        return _opened(node, bus, settings)

    return open_service


@asynccontextmanager
async def _opened(node: Node, bus: Bus, settings: Settings) -> AsyncGenerator[None, None]:
    embedder = EmbedderClient(bus, settings.vector_size)
    seeds = seed_documents(settings.shared_tenant) if settings.seed_documents else []
    library = Library(store_opener(settings), embedder, settings.ingest_characters, seeds)
    await library.open()
    node.supervise("documents", library.run)
    node.add(prompt_actor(node, PromptBuilder(settings, retriever(settings, library, embedder))))
    node.add(ingest_responder(node, library, settings))
    try:
        yield
    finally:
        await library.close()


def retriever(settings: Settings, library: Library, embedder: EmbedderClient) -> Retriever:
    rule = Rule(
        max_chunks=settings.retrieval_chunks,
        max_characters=settings.retrieval_characters,
        min_cosine=settings.min_cosine,
        min_cosine_with_words=settings.min_cosine_with_words,
        min_word_share=settings.min_word_share,
        min_word_share_alone=settings.min_word_share_alone,
        min_cosine_of_chunk=settings.min_cosine_of_chunk,
    )
    limits = Limits(settings.embed_seconds, settings.search_seconds, settings.retrieval_candidates)
    return Retriever(library, embedder, rule, limits, settings.shared_tenant)


def store_opener(settings: Settings) -> OpenStore:
    async def open_edge() -> DocumentStore:
        return await EdgeStore.open(settings.home / "store" / "documents", settings.vector_size)

    async def open_server() -> DocumentStore:
        from baton_prompt_builder.stores.server_store import ServerStore  # noqa: PLC0415  # optional extra

        return await ServerStore.open(
            settings.qdrant_url,
            settings.qdrant_api_key.get_secret_value(),
            settings.qdrant_collection,
            settings.vector_size,
        )

    return open_server if settings.qdrant_url else open_edge
