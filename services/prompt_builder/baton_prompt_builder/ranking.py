"""From two lists of hits to the few passages that go into the prompt. Pure.

Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): score = Σ 1 / (60 + rank), so that cosine and
BM25, which have no common scale, need none. Whether anything is worth pasting is decided before, on the
scores themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baton_prompt_builder.stores.interface import Found, Hit, StoredChunk

RRF_K = 60


@dataclass(frozen=True)
class Passage:
    """A chosen chunk. `score` is its cosine to the question where it is known, else its BM25 score."""

    chunk: StoredChunk
    score: float
    fused: float


@dataclass(frozen=True)
class Rule:
    """When `auto` uses documents at all, and which."""

    max_chunks: int
    max_characters: int
    min_cosine: float
    min_cosine_of_chunk: float
    min_bm25: float


def fuse(*rankings: Sequence[Hit]) -> list[tuple[StoredChunk, float]]:
    """Each chunk once, best first; ties in the order in which chunks were first seen."""
    scores: dict[str, float] = {}
    chunks: dict[str, StoredChunk] = {}
    for ranking in rankings:
        seen: set[str] = set()
        for rank, hit in enumerate(ranking, start=1):
            chunk_id = hit.chunk.chunk_id
            if chunk_id not in seen:
                seen.add(chunk_id)
                chunks.setdefault(chunk_id, hit.chunk)
                scores[chunk_id] = scores.get(chunk_id, 0.0) + 1 / (RRF_K + rank)
    return sorted(((chunks[key], score) for key, score in scores.items()), key=lambda item: -item[1])


def choose(found: Found, rule: Rule, *, always: bool) -> list[Passage]:
    """`always` (policy `on`) takes the best there are; else nothing that is too far from the question."""
    if not always and not is_about_documents(found, rule):
        return []
    cosines = {hit.chunk.chunk_id: hit.score for hit in found.dense}
    words = {hit.chunk.chunk_id: hit.score for hit in found.sparse}
    passages: list[Passage] = []
    num_characters = 0
    for chunk, fused in fuse(found.dense, found.sparse):
        if len(passages) == rule.max_chunks:
            break
        if not always and cosines and cosines.get(chunk.chunk_id, -1.0) < rule.min_cosine_of_chunk:
            continue
        if passages and num_characters + len(chunk.text) > rule.max_characters:
            continue
        num_characters += len(chunk.text)
        score = cosines.get(chunk.chunk_id, words.get(chunk.chunk_id, 0.0))
        passages.append(Passage(chunk, score, fused))
    return passages


def is_about_documents(found: Found, rule: Rule) -> bool:
    """By meaning where there are vectors, else by words."""
    if found.dense:
        return found.dense[0].score >= rule.min_cosine
    return bool(found.sparse) and found.sparse[0].score >= rule.min_bm25
