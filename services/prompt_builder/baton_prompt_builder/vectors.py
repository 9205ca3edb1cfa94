"""Gives every stored chunk its vector, in the background: after an ingest, after a start, after a new model.

Owns the retry while the embedder is away. Chunks without a vector are found by their words meanwhile, so
nobody has to wait for this.
"""

from __future__ import annotations

import asyncio
import logging

from baton_common.errors import BatonError
from baton_contracts.identifiers import new_request_id
from baton_prompt_builder.embedding import EmbedderClient, EmbeddingFailed
from baton_prompt_builder.stores.interface import DocumentStore, StoreError

log = logging.getLogger(__name__)

_BATCH = 16
"""Small enough that a question's own embedding is never behind much work."""
_BATCH_SECONDS = 30.0
_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)


class VectorFiller:
    def __init__(self, store: DocumentStore, embedder: EmbedderClient) -> None:
        self._store = store
        self._embedder = embedder
        self._model = ""
        self._wanted = asyncio.Event()
        self._complete = asyncio.Event()

    def wake(self) -> None:
        """Chunks may lack vectors."""
        self._complete.clear()
        self._wanted.set()

    def notice_model(self, model: str) -> None:
        """Tells which model the embedder serves now; after another one than before, all is embedded again."""
        if model != self._model:
            self._model = model
            self.wake()

    async def completed(self, seconds: float) -> bool:
        """Waits until every chunk has its vector; False if that takes longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._complete.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """For ever."""
        num_failures, last_reason = 0, ""
        while True:
            await self._wanted.wait()
            try:
                num_filled = await self._fill()
            except (EmbeddingFailed, StoreError, BatonError) as error:
                delay = _RETRY_SECONDS[min(num_failures, len(_RETRY_SECONDS) - 1)]
                if str(error) != last_reason:
                    log.info("documents wait for their vectors (%s); searching by words meanwhile", error)
                last_reason = str(error)
                num_failures += 1
                await asyncio.sleep(delay)
            else:
                num_failures, last_reason = 0, ""
                if num_filled:
                    log.info("%d chunks have their vectors", num_filled)

    async def _fill(self) -> int:
        num_filled = 0
        self._wanted.clear()
        try:
            if not self._model:
                probe = await self._embedder.embed(new_request_id(), ["probe"], _BATCH_SECONDS)
                self._model = probe.model
            while chunks := await self._store.without_vector(self._model, _BATCH):
                texts = [chunk.searchable_text for chunk in chunks]
                found = await self._embedder.embed(new_request_id(), texts, _BATCH_SECONDS)
                self._model = found.model
                ids = [chunk.chunk_id for chunk in chunks]
                await self._store.set_vectors(found.model, dict(zip(ids, found.vectors, strict=True)))
                num_filled += len(chunks)
        except BaseException:
            self._wanted.set()
            raise
        if not self._wanted.is_set():
            self._complete.set()
        return num_filled
