"""The search: remembers by hash, is bounded in time and memory, and fails as one kind of error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from baton_input_guardrails.personal_data import Analysis, Span
from baton_input_guardrails.search import PersonalDataSearch, SearchFailed


class FakeAnalyser:
    """Finds every capital A."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def analyse(self, texts: Sequence[str], abandoned: Callable[[], bool] = lambda: False) -> Analysis:
        self.seen.append(list(texts))
        spans = tuple(
            tuple(Span(at, at + 1, "PERSON", 1.0) for at, char in enumerate(text) if char == "A")
            for text in texts
        )
        return Analysis(spans, (1.0, 2.0), (2.0, 3.0))


async def test_a_text_is_analysed_once() -> None:
    analyser = FakeAnalyser()
    search = PersonalDataSearch(analyser)
    first = await search.find(["xA", "b", "xA"])
    second = await search.find(["b", "xA", "new"])
    third = await search.find(["xA", " "])
    assert analyser.seen == [["xA", "b"], ["new"]]
    assert first.spans == {"xA": (Span(1, 2, "PERSON", 1.0),), "b": ()}
    assert second.fresh is not None
    assert third.fresh is None
    assert third.spans["xA"] == (Span(1, 2, "PERSON", 1.0),)
    search.close()


async def test_the_memory_is_bounded_and_holds_no_text() -> None:
    search = PersonalDataSearch(FakeAnalyser(), remember=3)
    for number in range(10):
        await search.find([f"private {number}"])
    await search.find(["A" * 1000])
    assert search.num_remembered == 3
    assert "private" not in repr(vars(search))
    search.close()


class Broken:
    def analyse(self, texts: Sequence[str], abandoned: Callable[[], bool] = lambda: False) -> Analysis:
        raise RuntimeError(f"cannot read {texts[0]}")


async def test_a_broken_analyser_is_one_kind_of_error_without_the_text() -> None:
    search = PersonalDataSearch(Broken())
    with pytest.raises(SearchFailed, match=r"^RuntimeError$"):
        await search.find(["private"])
    search.close()


class Stuck:
    """Works until nobody waits any more."""

    def __init__(self) -> None:
        self.gave_up = threading.Event()

    def analyse(self, texts: Sequence[str], abandoned: Callable[[], bool] = lambda: False) -> Analysis:
        while not abandoned():
            pass
        self.gave_up.set()
        raise RuntimeError


async def test_a_stuck_analyser_is_given_up_and_told_so() -> None:
    stuck = Stuck()
    search = PersonalDataSearch(stuck, seconds=0.02, inline_chars=0)
    with pytest.raises(SearchFailed, match="took longer"):
        await search.find(["x"])
    assert stuck.gave_up.wait(5)
    search.close()


class Threads:
    """Notes where it ran; a text of more than three characters takes until it is let go."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.let_go = threading.Event()

    def analyse(self, texts: Sequence[str], abandoned: Callable[[], bool] = lambda: False) -> Analysis:
        self.names.append(threading.current_thread().name)
        if len(texts[0]) > 3:
            assert self.let_go.wait(10)
        return Analysis(tuple(() for _ in texts), (1.0, 2.0), (2.0, 3.0))


async def test_only_a_long_text_or_one_beside_it_goes_to_a_thread() -> None:
    analyser = Threads()
    search = PersonalDataSearch(analyser, inline_chars=3, remember=0)
    await search.find(["a"])
    long = asyncio.create_task(search.find(["long"]))
    await asyncio.sleep(0)
    await search.find(["b"])
    analyser.let_go.set()
    await long
    await search.find(["c"])
    search.close()
    own = threading.current_thread().name
    assert [name == own for name in analyser.names] == [True, False, False, True]
