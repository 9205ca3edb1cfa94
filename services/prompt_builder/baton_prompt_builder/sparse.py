"""Text to BM25 weights by word: the sparse half of retrieval, the same for every store.

Tokenizing, stop words, stemming and term weights are Qdrant's own; the rarity of words (IDF) is applied by
the store at search time.
"""

from __future__ import annotations

from qdrant_edge import Bm25, Bm25Config

_LONGEST_QUESTION = 4000
"""Characters of a question that are searched for: a pasted file is not a question."""

_bm25 = Bm25(Bm25Config(language="english", avg_len=80))


def words_of_document(text: str) -> tuple[list[int], list[float]]:
    vector = _bm25.embed_document(text)
    return vector.indices, vector.values


def words_of_question(text: str) -> tuple[list[int], list[float]]:
    """Empty if the question has only stop words."""
    vector = _bm25.embed_query(text[:_LONGEST_QUESTION])
    return vector.indices, vector.values


def shared_words(question: str, text: str) -> tuple[int, int]:
    """How many of the question's words the text has, and how many there are; stop words don't count."""
    asked = set(words_of_question(question)[0])
    return len(asked.intersection(words_of_document(text)[0])), len(asked)
