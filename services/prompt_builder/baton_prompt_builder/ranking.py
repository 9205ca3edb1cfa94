"""From two lists of hits to the few passages that go into the prompt. Pure.

Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): score = Σ 1 / (60 + rank), so that cosine and
BM25, which have no common scale, need none. Whether anything is worth pasting is decided before, on the
scores themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baton_prompt_builder.sparse import shared_words
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
    """The best passage is this close to the question in meaning,"""
    min_cosine_with_words: float
    """or this close, and has `min_word_share` of the question's words."""
    min_word_share: float
    min_word_share_alone: float
    """Without vectors: the best passage has this share of the question's words, and two of them at least."""
    min_cosine_of_chunk: float
    """Each further passage is at least this close."""


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


def choose(question: str, found: Found, rule: Rule, *, always: bool) -> list[Passage]:
    """`always` (policy `on`) takes the best there are; else nothing that is too far from the question."""
    if not always and not is_about_documents(question, found, rule):
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


def is_about_documents(question: str, found: Found, rule: Rule) -> bool:
    """By meaning where there are vectors, else by words. BM25 scores grow with the size of the store, so it
    is the share of the question's words that counts."""
    if found.dense:
        best = found.dense[0]
        if best.score >= rule.min_cosine or best.score < rule.min_cosine_with_words:
            return best.score >= rule.min_cosine
        return _has_words(question, best, rule.min_word_share)
    return any(
        _has_words(question, hit, rule.min_word_share_alone) for hit in found.sparse[: rule.max_chunks]
    )


def _has_words(question: str, hit: Hit, share: float) -> bool:
    num_shared, num_asked = shared_words(question, hit.chunk.searchable_text)
    return num_shared >= 2 and num_shared >= share * num_asked
