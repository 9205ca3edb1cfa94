"""Which passages go into this prompt: embed the question, search, fuse, choose.

Policy `auto` never fails a request: what is missing is noted in the trace and the answer goes on without.
Policy `on` needs the store, but not the embedder.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from baton_common.errors import RequestFailed
from baton_common.tracing import SpanRecorder
from baton_contracts.errors import ErrorBody
from baton_prompt_builder.assembly import citation_source
from baton_prompt_builder.embedding import EmbedderClient, EmbeddingFailed, Vectors
from baton_prompt_builder.library import Library
from baton_prompt_builder.ranking import Passage, Rule, choose
from baton_prompt_builder.stores.interface import Found, StoreError

Policy = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class Limits:
    embed_seconds: float
    search_seconds: float
    num_candidates: int


class Retriever:
    def __init__(
        self, library: Library, embedder: EmbedderClient, rule: Rule, limits: Limits, shared_tenant: str
    ) -> None:
        self._library = library
        self._embedder = embedder
        self._rule = rule
        self._limits = limits
        self._shared_tenant = shared_tenant

    async def retrieve(
        self, request_id: str, tenant_id: str, policy: Policy, question: str, spans: SpanRecorder
    ) -> list[Passage]:
        """Best first. Raises RequestFailed only under policy `on`."""
        if policy == "off" or not question.strip():
            return []
        vectors = await self._embed(request_id, question, spans)
        found = await self._search(question, vectors, tenant_id, policy, spans)
        return choose(question, found, self._rule, always=policy == "on")

    async def _embed(self, request_id: str, question: str, spans: SpanRecorder) -> Vectors | None:
        with spans.span("embed") as span:
            try:
                vectors = await self._embedder.embed(request_id, [question], self._limits.embed_seconds)
            except EmbeddingFailed as failure:
                span.set(fallback="words only", embedder=failure.reason)
                span.status = "error"
                return None
            span.set(model=vectors.model)
            return vectors

    async def _search(
        self, question: str, vectors: Vectors | None, tenant_id: str, policy: Policy, spans: SpanRecorder
    ) -> Found:
        tenants = (tenant_id, self._shared_tenant)
        with spans.span("search") as span:
            try:
                async with asyncio.timeout(self._limits.search_seconds):
                    found = await self._library.search(
                        question, vectors, tenants, self._limits.num_candidates
                    )
            except (StoreError, TimeoutError) as error:
                reason = str(error) or "too slow"
                span.set(fallback="no documents", store=reason)
                span.status = "error"
                if policy == "on":
                    raise RequestFailed(_unavailable(reason)) from error
                return Found()
            span.set(num_dense=len(found.dense), num_sparse=len(found.sparse))
            for name, hits in (("best_cosine", found.dense), ("best_bm25", found.sparse)):
                if hits:
                    span.set(**{name: round(hits[0].score, 4)})
            return found


def trace_labels(passages: list[Passage]) -> tuple[str, ...]:
    """Source and score of each passage, without its text."""
    return tuple(f"{citation_source(passage)} ({passage.score:.3f})" for passage in passages)


def _unavailable(reason: str) -> ErrorBody:
    text = (
        f"Documents were asked for (retrieval `on`) but can't be searched: {reason}. Try again or use `auto`."
    )
    return ErrorBody(code="stop_unresponsive", message=text, stop="prompt_builder", retry_after_seconds=1)
