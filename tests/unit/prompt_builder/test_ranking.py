"""Fusion by rank, and the decision whether documents are used at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baton_prompt_builder.ranking import Rule, choose, fuse, is_about_documents
from baton_prompt_builder.stores.interface import Found, Hit, StoredChunk

RULE = Rule(
    max_chunks=3,
    max_characters=1000,
    min_cosine=0.4,
    min_cosine_with_words=0.28,
    min_word_share=0.75,
    min_word_share_alone=0.6,
    min_cosine_of_chunk=0.25,
)


def _chunk(name: str, text: str = "the queue is full") -> StoredChunk:
    return StoredChunk(name, "t", f"{name}.md", name, (), text)


def _hits(**scores: float) -> tuple[Hit, ...]:
    return tuple(Hit(_chunk(name), score) for name, score in scores.items())


def _names(passages: list[tuple[StoredChunk, float]]) -> list[str]:
    return [chunk.chunk_id for chunk, _ in passages]


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = fuse(_hits(a=0.9, b=0.8), _hits(b=12.0, c=3.0))
    assert _names(fused) == ["b", "a", "c"]
    assert [score for _, score in fused] == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62])


def test_one_list_alone_keeps_its_order() -> None:
    assert _names(fuse((), _hits(a=3.0, b=2.0, c=1.0))) == ["a", "b", "c"]
    assert fuse((), ()) == []


def test_a_chunk_twice_in_one_list_counts_once() -> None:
    twice = (*_hits(a=0.9), *_hits(a=0.8), *_hits(b=0.7))
    assert [(chunk.chunk_id, score) for chunk, score in fuse(twice)] == [("a", 1 / 61), ("b", 1 / 63)]


@pytest.mark.parametrize(
    ("question", "cosine", "about"),
    [
        ("anything", 0.40, True),
        ("anything", 0.39, False),
        ("is the queue full", 0.28, True),  # 2 of 2 words
        ("is the queue full", 0.27, False),
        ("queue full tomorrow", 0.39, False),  # 2 of 3
        ("queue", 0.39, False),  # one word proves nothing
    ],
)
def test_auto_needs_closeness_in_meaning_or_less_of_it_with_the_words(
    question: str, cosine: float, about: bool
) -> None:
    assert is_about_documents(question, Found(dense=_hits(a=cosine)), RULE) is about


@pytest.mark.parametrize(
    ("question", "about"),
    [("is the queue full", True), ("queue full tomorrow", True), ("queue tomorrow", False), ("hi", False)],
)
def test_auto_without_vectors_needs_the_words(question: str, about: bool) -> None:
    assert is_about_documents(question, Found(sparse=_hits(a=99.0)), RULE) is about


def test_nothing_found_is_nothing_chosen_under_any_policy() -> None:
    assert choose("queue full", Found(), RULE, always=False) == []
    assert choose("queue full", Found(), RULE, always=True) == []


def test_auto_leaves_out_chunks_that_are_far_away_and_on_takes_them() -> None:
    found = Found(dense=_hits(a=0.6, b=0.3, c=0.2), sparse=_hits(c=9.0, d=8.0))
    assert [passage.chunk.chunk_id for passage in choose("x", found, RULE, always=False)] == ["a", "b"]
    on = choose("x", found, RULE, always=True)
    assert [passage.chunk.chunk_id for passage in on] == ["c", "a", "b"]
    assert [passage.score for passage in on] == [0.2, 0.6, 0.3]


def test_the_character_budget_leaves_out_what_does_not_fit_but_never_the_first() -> None:
    large = (
        Hit(_chunk("a", "x" * 900), 0.9),
        Hit(_chunk("b", "x" * 200), 0.8),
        Hit(_chunk("c", "x" * 90), 0.7),
    )
    chosen = choose("x", Found(dense=large), RULE, always=False)
    assert [passage.chunk.chunk_id for passage in chosen] == ["a", "c"]
    small = replace(RULE, max_characters=10)
    assert [p.chunk.chunk_id for p in choose("x", Found(dense=large), small, always=False)] == ["a"]
