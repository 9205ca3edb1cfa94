"""Finding the answer to a question that was phrased otherwise; when not; and what is kept for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from baton_contracts.frames import Usage
from baton_llm_gateway.likeness import Vectors
from baton_llm_gateway.response_cache import CachedAnswer, ResponseCache
from baton_llm_gateway.semantic_cache import KEY_BYTES, MAX_PHRASINGS, PHRASING_BYTES, SemanticCache
from baton_llm_gateway.semantic_key import Alike


class SteppedClock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Degrees:
    """A text is its direction in degrees."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.model = "degrees"
        self.is_there = True

    async def embed(self, request_id: str, texts: Sequence[str]) -> Vectors | None:
        assert request_id == "rid"
        self.asked.append(tuple(texts))
        if not self.is_there:
            return None
        angles = [math.radians(float(text)) for text in texts]
        return Vectors(self.model, tuple((math.cos(angle), math.sin(angle)) for angle in angles))


class Stage:
    def __init__(self, max_bytes: int = 10_000_000) -> None:
        self.clock = SteppedClock()
        self.answers = ResponseCache(self.clock, max_bytes=10_000_000, ttl_seconds=60)  # pyright: ignore[reportArgumentType]
        self.embedder = Degrees()
        self.cache = SemanticCache(self.answers, self.embedder.embed, max_bytes=max_bytes)

    def knows(self, question: str, key: str = "k") -> None:
        self.answers.put(f"answer {question}", CachedAnswer(f"of {question}", "stop", Usage()))
        self.cache.remember(Alike(key, question), f"answer {question}")

    async def find(
        self, question: str, key: str = "k", threshold: float = 0.9, max_age: float | None = None
    ) -> tuple[str, str | None]:
        verdict = await self.cache.find("rid", Alike(key, question), threshold, max_age)
        return verdict.why, verdict.hit.answer.text if verdict.hit else None


async def test_the_most_alike_answer_is_given_with_its_similarity() -> None:
    stage = Stage()
    for degrees in ("0", "20", "50"):
        stage.knows(degrees)
    verdict = await stage.cache.find("rid", Alike("k", "15"), 0.9, None)
    assert verdict.hit is not None
    assert verdict.hit.answer.text == "of 20"
    assert verdict.hit.similarity == pytest.approx(math.cos(math.radians(5)))


async def test_below_the_threshold_is_a_miss_that_says_how_near_it_was() -> None:
    stage = Stage()
    stage.knows("0")
    verdict = await stage.cache.find("rid", Alike("k", "60"), 0.6, None)
    assert (verdict.why, verdict.hit) == ("below", None)
    assert verdict.nearest == pytest.approx(0.5)


async def test_what_is_no_number_is_not_near() -> None:
    stage = Stage()
    stage.knows("0")
    assert await stage.find("nan") == ("below", None)


async def test_without_a_candidate_nobody_is_asked() -> None:
    stage = Stage()
    stage.knows("0", key="other")
    assert await stage.find("0") == ("none_alike", None)
    assert stage.embedder.asked == []


async def test_a_vector_is_asked_for_once_and_anew_from_another_model() -> None:
    stage = Stage()
    stage.knows("0")
    await stage.find("1")
    await stage.find("2")
    assert stage.embedder.asked == [("1", "0"), ("2",)]
    stage.embedder.model = "newer"
    assert (await stage.find("3"))[1] is None
    assert await stage.find("4") == ("hit", "of 0")
    assert stage.embedder.asked[-1] == ("4", "0")


async def test_without_an_embedder_it_is_a_miss() -> None:
    stage = Stage()
    stage.knows("0")
    stage.embedder.is_there = False
    assert await stage.find("1") == ("embedder", None)


async def test_a_question_lives_as_long_as_its_answer() -> None:
    stage = Stage()
    stage.knows("0")
    stage.clock.now += 30
    assert await stage.find("1", max_age=20) == ("none_alike", None)
    assert await stage.find("1") == ("hit", "of 0")
    stage.clock.now += 31
    assert await stage.find("1") == ("none_alike", None)
    assert stage.cache.num_bytes == 0


async def test_memory_is_bounded_by_phrasings_and_by_bytes() -> None:
    stage = Stage()
    for number in range(MAX_PHRASINGS + 3):
        stage.knows(f"{number + 10}")
    assert stage.cache.num_bytes == KEY_BYTES + MAX_PHRASINGS * (PHRASING_BYTES + 2)
    assert await stage.find("0", threshold=0.5) == ("hit", "of 13")

    narrow = Stage(max_bytes=2 * (KEY_BYTES + PHRASING_BYTES + 1))
    for key in ("a", "b", "a", "c"):
        narrow.knows("0", key=key)
    assert [(await narrow.find("0", key=key))[0] for key in ("a", "b", "c")] == ["hit", "none_alike", "hit"]
