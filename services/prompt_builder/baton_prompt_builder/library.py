"""The documents of this process: the store once it is open, what goes in, what is found.

Owns the store's life. A store that can't be opened now (another process still has the folder, the server is
away) is tried again; until then searches and ingests fail with StoreError, and the service goes on without.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from baton_contracts.queries import IngestQuery
from baton_prompt_builder.embedding import EmbedderClient, Vectors
from baton_prompt_builder.ingestion import Change, Ingestion
from baton_prompt_builder.stores.interface import DocumentStore, Found, StoreError
from baton_prompt_builder.vectors import VectorFiller

log = logging.getLogger(__name__)

OpenStore = Callable[[], Awaitable[DocumentStore]]
_RETRY_SECONDS = 1.0


class Library:
    def __init__(
        self,
        open_store: OpenStore,
        embedder: EmbedderClient,
        max_characters: int,
        seeds: Sequence[IngestQuery],
    ) -> None:
        self._open_store = open_store
        self._embedder = embedder
        self._max_characters = max_characters
        self._seeds = seeds
        self._store: DocumentStore | None = None
        self._why_closed = "the document store is not open yet"
        self._ingestion: Ingestion | None = None
        self._filler: VectorFiller | None = None

    async def open(self) -> bool:
        """One try. The seed documents are there, by their words, when this returns True."""
        try:
            self._store = await self._open_store()
            self._ingestion = Ingestion(self._store, self._max_characters)
            self._filler = VectorFiller(self._store, self._embedder)
            await self._seed(self._store, self._ingestion)
        except StoreError as error:
            if str(error) != self._why_closed:
                log.warning("documents are not available: %s", error)
            self._why_closed = str(error)
            await self.close()
            return False
        self._filler.wake()
        return True

    async def run(self) -> None:
        """Until the process ends: opens the store if need be, then keeps its vectors complete."""
        while True:
            if self._filler or await self.open():
                break
            await asyncio.sleep(_RETRY_SECONDS)
        if self._filler:
            await self._filler.run()

    async def _seed(self, store: DocumentStore, ingestion: Ingestion) -> None:
        """The shared tenant's own set: what is new goes in, what is no longer part of it goes out."""
        if not self._seeds:
            return
        changes = [await ingestion.ingest(seed) for seed in self._seeds]
        shared, wanted = self._seeds[0].tenant_id, {seed.source for seed in self._seeds}
        folder = self._seeds[0].source.split("/")[0] + "/"
        gone = [s for s in await store.sources_of(shared) if s.startswith(folder) and s not in wanted]
        for source in gone:
            await ingestion.ingest(IngestQuery(tenant_id=shared, source=source, text=""))
        num_chunks, num_added = sum(c.chunks for c in changes), sum(c.added for c in changes)
        log.info("%d seed documents, %d chunks, %d of them new", len(wanted), num_chunks, num_added)

    async def ingest(self, query: IngestQuery, embed_seconds: float) -> Change:
        """Raises StoreError, RequestFailed."""
        if self._ingestion is None or self._filler is None:
            raise StoreError(self._why_closed)
        change = await self._ingestion.ingest(query)
        if change.added:
            self._filler.wake()
            await self._filler.completed(embed_seconds)
        return change

    async def search(self, text: str, vectors: Vectors | None, tenants: Sequence[str], limit: int) -> Found:
        """Raises StoreError."""
        if self._store is None or self._filler is None:
            raise StoreError(self._why_closed)
        if vectors is None:
            return await self._store.search(text, None, "", tenants, limit)
        self._filler.notice_model(vectors.model)
        return await self._store.search(text, vectors.vectors[0], vectors.model, tenants, limit)

    async def close(self) -> None:
        store, self._store, self._ingestion, self._filler = self._store, None, None, None
        if store:
            try:
                await store.close()
            except StoreError as error:
                log.warning("closing: %s", error)
