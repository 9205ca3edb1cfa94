"""The store in this process: Qdrant's own core over one folder, which one process may own.

All calls run in one thread of their own, so the event loop never waits for the disk, and each call is atomic
towards the others. Updates go through a write-ahead log: a kill loses nothing that was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    FieldCondition,
    Filter,
    IdfParams,
    MatchAny,
    MatchValue,
    Modifier,
    PayloadSchemaType,
    Point,
    PointVectors,
    Query,
    QueryRequest,
    Record,
    ScoredPoint,
    ScrollRequest,
    SearchParams,
    SparseVector,
    UpdateOperation,
)

from baton_prompt_builder.sparse import words_of_document, words_of_question
from baton_prompt_builder.stores.interface import Found, Hit, StoredChunk, StoreError, Vector, from_payload
from baton_prompt_builder.stores.layout import DENSE, INDEXED, PAGE, SPARSE, new_payload

T = TypeVar("T")


class EdgeStore:
    def __init__(self, shard: EdgeShard, executor: ThreadPoolExecutor) -> None:
        self._shard = shard
        self._executor = executor
        self._closed = False

    @classmethod
    async def open(cls, folder: Path, vector_size: int) -> EdgeStore:
        """Raises StoreError, for instance while another process holds the folder."""
        executor = ThreadPoolExecutor(1, "documents")
        try:
            shard = await asyncio.get_running_loop().run_in_executor(
                executor, _open_shard, folder, vector_size
            )
        except Exception as error:  # the core raises plain Exception
            executor.shutdown(wait=False)
            raise StoreError(f"{folder} can't be opened: {error}") from error
        return cls(shard, executor)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreError("the document store is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except Exception as error:
            if type(error) is Exception:  # so the core raises; anything else is a mistake of ours
                raise StoreError(f"document store: {error}") from error
            raise

    async def upsert(self, chunks: Sequence[StoredChunk]) -> None:
        for first in range(0, len(chunks), PAGE):
            page = chunks[first : first + PAGE]
            await self._run(
                lambda page=page: self._shard.update(UpdateOperation.upsert_points(_points(page)))
            )

    async def delete(self, chunk_ids: Sequence[str]) -> None:
        if chunk_ids:
            await self._run(lambda: self._shard.update(UpdateOperation.delete_points(list(chunk_ids))))

    async def ids_of(self, tenant_id: str, source: str) -> set[str]:
        wanted = Filter(must=[_is("tenant_id", tenant_id), _is("source", source)])
        return {str(record.id) for record in await self._run(lambda: self._scroll(wanted, payload=[]))}

    async def sources_of(self, tenant_id: str) -> set[str]:
        wanted = Filter(must=[_is("tenant_id", tenant_id)])
        records = await self._run(lambda: self._scroll(wanted, payload=["source"]))
        return {str((record.payload or {})["source"]) for record in records}

    async def without_vector(self, model: str, limit: int) -> list[StoredChunk]:
        wanted = Filter(must_not=[_is("embedded_by", model)])
        request = ScrollRequest(limit=limit, filter=wanted, with_payload=True)
        records, _ = await self._run(lambda: self._shard.scroll(request))
        return [from_payload(str(record.id), record.payload or {}) for record in records]

    async def set_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        await self._run(lambda: self._set_vectors(model, vectors))

    def _set_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """The mark comes after the vectors: a kill between the two means that they are made once more."""
        found = self._shard.retrieve(list(vectors), with_payload=False, with_vector=False)
        there = [str(record.id) for record in found]
        if there:
            points = [PointVectors(chunk_id, {DENSE: list(vectors[chunk_id])}) for chunk_id in there]
            self._shard.update(UpdateOperation.update_vectors(points))
            self._shard.update(UpdateOperation.set_payload(list(there), {"embedded_by": model}))

    async def search(
        self, text: str, vector: Vector | None, model: str, tenants: Sequence[str], limit: int
    ) -> Found:
        return await self._run(lambda: self._search(text, vector, model, tenants, limit))

    def _search(
        self, text: str, vector: Vector | None, model: str, tenants: Sequence[str], limit: int
    ) -> Found:
        mine = FieldCondition("tenant_id", MatchAny(list(tenants)))
        # Rarity of a word counts over what the tenant may see: others' documents leave no trace in scores.
        corpus = SearchParams(idf=IdfParams(Filter(must=[mine])))
        indices, values = words_of_question(text)
        by_words = Query.Nearest(SparseVector(indices, values), using=SPARSE)
        sparse = self._query(by_words, Filter(must=[mine]), limit, corpus) if indices else ()
        if vector is None:
            return Found(sparse=sparse)
        by_meaning = Query.Nearest(list(vector), using=DENSE)
        return Found(self._query(by_meaning, Filter(must=[mine, _is("embedded_by", model)]), limit), sparse)

    def _query(
        self, query: Query, wanted: Filter, limit: int, params: SearchParams | None = None
    ) -> tuple[Hit, ...]:
        request = QueryRequest(limit=limit, query=query, filter=wanted, params=params, with_payload=True)
        return tuple(map(_hit, self._shard.query(request)))

    def _scroll(self, wanted: Filter, payload: list[str]) -> list[Record]:
        records: list[Record] = []
        offset = None
        while True:
            request = ScrollRequest(offset=offset, limit=PAGE, filter=wanted, with_payload=payload)
            page, offset = self._shard.scroll(request)
            records += page
            if offset is None:
                return records

    async def close(self) -> None:
        """Waits for calls under way; later ones fail."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._executor, self._shard.close)
        self._executor.shutdown(wait=False)


def _open_shard(folder: Path, vector_size: int) -> EdgeShard:
    folder.mkdir(parents=True, exist_ok=True)
    config = EdgeConfig(
        vectors={DENSE: EdgeVectorParams(size=vector_size, distance=Distance.Cosine)},
        sparse_vectors={SPARSE: EdgeSparseVectorParams(modifier=Modifier.Idf)},
    )
    if (folder / "edge_config.json").exists():
        shard = EdgeShard.load(str(folder), config)
    else:
        shard = EdgeShard.create(str(folder), config)
    shard.count(CountRequest(exact=False))
    for field in INDEXED:  # idempotent
        shard.update(UpdateOperation.create_field_index(field, PayloadSchemaType.Keyword))
    return shard


def _is(field: str, value: str) -> FieldCondition:
    return FieldCondition(field, MatchValue(value))


def _points(chunks: Sequence[StoredChunk]) -> list[Point]:
    points: list[Point] = []
    for chunk in chunks:
        indices, values = words_of_document(chunk.searchable_text)
        points.append(Point(chunk.chunk_id, {SPARSE: SparseVector(indices, values)}, new_payload(chunk)))
    return points


def _hit(point: ScoredPoint) -> Hit:
    return Hit(from_payload(str(point.id), point.payload or {}), point.score)
