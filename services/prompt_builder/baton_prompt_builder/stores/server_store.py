"""The store on a Qdrant server: for several prompt builders over one set of documents.

Needs the extra `server` of this distribution. Same collection layout, filters and BM25 weights as
the store in this process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from qdrant_client import AsyncQdrantClient, models

from baton_prompt_builder.sparse import words_of_document, words_of_question
from baton_prompt_builder.stores.interface import Found, Hit, StoredChunk, StoreError, Vector, from_payload
from baton_prompt_builder.stores.layout import DENSE, INDEXED, PAGE, SPARSE, new_payload

T = TypeVar("T")


class ServerStore:
    def __init__(self, client: AsyncQdrantClient, collection: str) -> None:
        self._client = client
        self._collection = collection

    @classmethod
    async def open(cls, url: str, api_key: str, collection: str, vector_size: int) -> ServerStore:
        """`url` may be `:memory:`, for tests. Raises StoreError while the server can't be reached."""
        client = AsyncQdrantClient(url, api_key=api_key or None, check_compatibility=False, timeout=10)
        store = cls(client, collection)
        try:
            await store._prepare(vector_size)
        except StoreError:
            await client.close()
            raise
        return store

    async def _prepare(self, vector_size: int) -> None:
        """Makes the collection and its indexes where they are missing: of both, since a kill may have come
        between them."""
        if not await _asked(self._client.collection_exists(self._collection)):
            await _asked(
                self._client.create_collection(
                    self._collection,
                    vectors_config={
                        DENSE: models.VectorParams(size=vector_size, distance=models.Distance.COSINE)
                    },
                    sparse_vectors_config={SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                )
            )
        for field in INDEXED:  # idempotent
            schema = models.KeywordIndexParams(
                type=models.KeywordIndexType.KEYWORD, is_tenant=field == "tenant_id"
            )
            await _asked(self._client.create_payload_index(self._collection, field, schema))

    async def upsert(self, chunks: Sequence[StoredChunk]) -> None:
        for first in range(0, len(chunks), PAGE):
            points = [_point(chunk) for chunk in chunks[first : first + PAGE]]
            await _asked(self._client.upsert(self._collection, points, wait=True))

    async def delete(self, chunk_ids: Sequence[str]) -> None:
        if chunk_ids:
            selector = models.PointIdsList(points=list(chunk_ids))
            await _asked(self._client.delete(self._collection, selector, wait=True))

    async def ids_of(self, tenant_id: str, source: str) -> set[str]:
        wanted = models.Filter(must=[_is("tenant_id", tenant_id), _is("source", source)])
        return {str(record.id) for record in await self._scroll(wanted, False)}

    async def sources_of(self, tenant_id: str) -> set[str]:
        wanted = models.Filter(must=[_is("tenant_id", tenant_id)])
        records = await self._scroll(wanted, ["source"])
        return {str((record.payload or {})["source"]) for record in records}

    async def without_vector(self, model: str, limit: int) -> list[StoredChunk]:
        wanted = models.Filter(must_not=[_is("embedded_by", model)])
        records, _ = await _asked(
            self._client.scroll(self._collection, wanted, limit=limit, with_payload=True)
        )
        return [from_payload(str(record.id), record.payload or {}) for record in records]

    async def set_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """The mark comes after the vectors: a kill between the two means that they are made once more."""
        records = await _asked(self._client.retrieve(self._collection, list(vectors), with_payload=False))
        there: list[int | str] = [str(record.id) for record in records]
        if not there:
            return
        points = [
            models.PointVectors(id=chunk_id, vector={DENSE: list(vectors[str(chunk_id)])})
            for chunk_id in there
        ]
        await _asked(self._client.update_vectors(self._collection, points, wait=True))
        await _asked(self._client.set_payload(self._collection, {"embedded_by": model}, list(there)))

    async def search(
        self, text: str, vector: Vector | None, model: str, tenants: Sequence[str], limit: int
    ) -> Found:
        mine = models.FieldCondition(key="tenant_id", match=models.MatchAny(any=list(tenants)))
        indices, values = words_of_question(text)
        sparse: tuple[Hit, ...] = ()
        dense: tuple[Hit, ...] = ()
        if indices:
            by_words = models.SparseVector(indices=indices, values=values)
            # Rarity of a word counts over what the tenant may see, as in the store in this process.
            corpus = models.SearchParams(idf=models.IdfCorpusParams(corpus=models.Filter(must=[mine])))
            sparse = await self._query(by_words, SPARSE, models.Filter(must=[mine]), limit, corpus)
        if vector is not None:
            wanted = models.Filter(must=[mine, _is("embedded_by", model)])
            dense = await self._query(list(vector), DENSE, wanted, limit, None)
        return Found(dense, sparse)

    async def _query(
        self,
        query: models.SparseVector | list[float],
        using: str,
        wanted: models.Filter,
        limit: int,
        params: models.SearchParams | None,
    ) -> tuple[Hit, ...]:
        answer = await _asked(
            self._client.query_points(
                self._collection,
                query=query,
                using=using,
                query_filter=wanted,
                search_params=params,
                limit=limit,
                with_payload=True,
            )
        )
        return tuple(
            Hit(from_payload(str(point.id), point.payload or {}), point.score) for point in answer.points
        )

    async def _scroll(self, wanted: models.Filter, payload: bool | list[str]) -> list[models.Record]:
        records: list[models.Record] = []
        offset = None
        while True:
            page, offset = await _asked(
                self._client.scroll(self._collection, wanted, limit=PAGE, offset=offset, with_payload=payload)
            )
            records += page
            if offset is None:
                return records

    async def close(self) -> None:
        await _asked(self._client.close())


async def _asked(call: Awaitable[T]) -> T:
    try:
        return await call
    except Exception as error:  # the client raises its own, httpx' and pydantic's errors
        raise StoreError(f"Qdrant server: {type(error).__name__}: {error}") from error


def _is(field: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=field, match=models.MatchValue(value=value))


def _point(chunk: StoredChunk) -> models.PointStruct:
    indices, values = words_of_document(chunk.searchable_text)
    vector = {SPARSE: models.SparseVector(indices=indices, values=values)}
    return models.PointStruct(id=chunk.chunk_id, vector=vector, payload=new_payload(chunk))  # pyright: ignore[reportArgumentType]  # dict is invariant
