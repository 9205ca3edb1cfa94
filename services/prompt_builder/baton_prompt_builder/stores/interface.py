"""The document store as the rest of the service sees it.

Every search names the tenants whose chunks it may see, and a store applies that filter in every branch. A
chunk can be found by its words as soon as it is stored, and by its meaning once it has a vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Vector = Sequence[float]


class StoreError(Exception):
    """The store can't be used: not open, locked by another process, damaged or out of reach."""


@dataclass(frozen=True)
class StoredChunk:
    """A passage of one document. `chunk_id` is a UUID made from all the rest, so equal chunks are one."""

    chunk_id: str
    tenant_id: str
    source: str
    """Name of the document, its identity for replacement."""
    title: str
    headings: tuple[str, ...]
    """Path of headings below the title."""
    text: str

    @property
    def label(self) -> str:
        """Where it comes from, for people and for the model."""
        return " > ".join((self.title, *self.headings))

    @property
    def searchable_text(self) -> str:
        """What is embedded and indexed: headings carry words that the passage leaves out."""
        return f"{self.label}\n{self.text}"


@dataclass(frozen=True)
class Hit:
    chunk: StoredChunk
    score: float


@dataclass(frozen=True)
class Found:
    """Best first. `dense`: cosine to the question's vector; `sparse`: BM25."""

    dense: tuple[Hit, ...] = ()
    sparse: tuple[Hit, ...] = ()


class DocumentStore(Protocol):
    """All methods raise StoreError."""

    async def upsert(self, chunks: Sequence[StoredChunk]) -> None: ...

    async def delete(self, chunk_ids: Sequence[str]) -> None:
        """Ids that are not there are no error."""
        ...

    async def ids_of(self, tenant_id: str, source: str) -> set[str]: ...

    async def sources_of(self, tenant_id: str) -> set[str]: ...

    async def without_vector(self, model: str, limit: int) -> list[StoredChunk]:
        """Chunks that have no vector of this model yet."""
        ...

    async def set_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """Chunks that are gone meanwhile are passed over."""
        ...

    async def search(
        self, text: str, vector: Vector | None, model: str, tenants: Sequence[str], limit: int
    ) -> Found:
        """By words, and by meaning if there is a vector (of `model`)."""
        ...

    async def close(self) -> None: ...


def to_payload(chunk: StoredChunk) -> dict[str, str | list[str]]:
    return {
        "tenant_id": chunk.tenant_id,
        "source": chunk.source,
        "title": chunk.title,
        "headings": list(chunk.headings),
        "text": chunk.text,
    }


def from_payload(chunk_id: str, payload: Mapping[str, object]) -> StoredChunk:
    """Raises StoreError if the point is not one of ours."""
    try:
        headings = payload["headings"]
        return StoredChunk(
            chunk_id=chunk_id,
            tenant_id=str(payload["tenant_id"]),
            source=str(payload["source"]),
            title=str(payload["title"]),
            headings=tuple(map(str, headings)) if isinstance(headings, list) else (),
            text=str(payload["text"]),
        )
    except KeyError as error:
        raise StoreError(f"point {chunk_id} has no {error} in its payload") from None
