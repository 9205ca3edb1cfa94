"""One document in: chunked, compared with what is stored, and only the difference written.

New chunks are written before old ones are removed, and ids are hashes of content: a kill at any point leaves
a store in which the same document, sent again, ends in the right state.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from baton_common.errors import RequestFailed
from baton_contracts.queries import IngestQuery
from baton_prompt_builder.chunking import chunk_markdown, chunk_plain_text
from baton_prompt_builder.html_text import NestedTooDeep, html_to_markdown
from baton_prompt_builder.stores.interface import DocumentStore, StoredChunk


@dataclass(frozen=True)
class Change:
    chunks: int
    added: int
    removed: int


def chunk_document(query: IngestQuery) -> list[StoredChunk]:
    if query.media_type == "text/markdown":
        return chunk_markdown(query.tenant_id, query.source, query.text)
    if query.media_type == "text/html":
        return chunk_markdown(query.tenant_id, query.source, html_to_markdown(query.text))
    return chunk_plain_text(query.tenant_id, query.source, query.text)


class Ingestion:
    def __init__(self, store: DocumentStore, max_characters: int) -> None:
        self._store = store
        self._max_characters = max_characters
        self._turn = asyncio.Lock()
        """One document at a time: two versions of one document must not interleave."""

    async def ingest(self, query: IngestQuery) -> Change:
        """Raises RequestFailed (too large, not readable) and StoreError."""
        if len(query.text) > self._max_characters:
            text = (
                f"The document has {len(query.text)} characters; {self._max_characters} is the most. "
                "Split it into several files."
            )
            raise RequestFailed.because("request_too_large", text, param="text")
        try:
            chunks = await asyncio.to_thread(chunk_document, query)
        except NestedTooDeep as error:
            text = f"The page can't be read: {error}."
            raise RequestFailed.because("invalid_value", text, param="text") from error
        async with self._turn:
            before = await self._store.ids_of(query.tenant_id, query.source)
            now = {chunk.chunk_id for chunk in chunks}
            added = [chunk for chunk in chunks if chunk.chunk_id not in before]
            removed = sorted(before - now)
            await self._store.upsert(added)
            await self._store.delete(removed)
        return Change(len(now), len(added), len(removed))
