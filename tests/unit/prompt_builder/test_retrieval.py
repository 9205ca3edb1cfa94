"""A search that lacks a part goes on without it, and the trace says so."""

from __future__ import annotations

from typing import Any, cast

import pytest

from baton_common.errors import RequestFailed
from baton_common.tracing import SpanRecorder
from baton_prompt_builder.embedding import EmbedderClient, EmbeddingFailed
from baton_prompt_builder.library import Library
from baton_prompt_builder.ranking import Rule
from baton_prompt_builder.retrieval import Limits, Policy, Retriever
from baton_prompt_builder.stores.interface import StoreError
from tests.support.relay import HandClock


class NoVectors:
    async def embed(self, *_: Any) -> Any:
        raise EmbeddingFailed("slow")


class NoStore:
    async def search(self, *_: Any) -> Any:
        raise StoreError("locked")


def retrieving(policy: Policy) -> tuple[Any, SpanRecorder]:
    spans = SpanRecorder("prompt_builder", "prompt_builder-1", 3, HandClock().clock)
    retriever = Retriever(
        cast(Library, NoStore()),
        cast(EmbedderClient, NoVectors()),
        cast(Rule, None),
        Limits(1, 1, 4),
        "shared",
    )
    return retriever.retrieve("0" * 32, "acme", policy, "Why?", spans), spans


async def test_without_embedder_and_store_a_question_on_documents_fails_by_name() -> None:
    searching, spans = retrieving("on")
    with pytest.raises(RequestFailed) as failed:
        await searching
    assert failed.value.error.stop == "prompt_builder"
    told = {span.name: (span.status, span.attributes["fallback"]) for span in spans.spans}
    assert told == {"embed": ("error", "words only"), "search": ("error", "no documents")}
