"""Compiling: once, off the caller's thread, bounded in time and number."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from baton_engine import InvalidParameter, QueueFull, StructuredOutput
from baton_engine.structured import compiler as compiler_module
from baton_engine.structured.compiler import NUM_THREADS, CompileLimits
from baton_engine.structured.grammar_text import grammar_text
from baton_engine.structured.matcher import Matcher, StructureBroken
from tests.support.structures import allowed_ids, byte_grammars, matcher_of, takes
from tests.support.tiny_model import EOS

ENDLESS_TO_COMPILE = {"allOf": [{"type": "string", "pattern": f".*a.{{{n}}}$"} for n in range(1, 30)]}
"""Each pattern doubles the states of the whole: years of work in 900 bytes."""


class CountedText:
    """Stands in for `grammar_text`: counts, and waits where it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[StructuredOutput] = []
        self.threads: set[str] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        monkeypatch.setattr(compiler_module, "grammar_text", self)

    def __call__(self, wanted: StructuredOutput) -> str:
        self.seen.append(wanted)
        self.threads.add(threading.current_thread().name)
        assert self.go_on.wait(30)
        return grammar_text(wanted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> CountedText:
    return CountedText(monkeypatch)


def test_a_structure_is_compiled_once(counted: CountedText) -> None:
    grammars = byte_grammars()
    counted.go_on.clear()
    asked = [grammars.prepare(StructuredOutput(regex="ab", param=param)) for param in ("x", "y")]
    counted.go_on.set()
    one, other = (future.result(30) for future in asked)
    assert one is other is grammars.grammar(StructuredOutput(regex="ab"))
    assert len(counted.seen) == 1
    assert all(name.startswith("baton-grammar") for name in counted.threads)


def test_a_refusal_is_remembered_and_names_each_caller_s_parameter(counted: CountedText) -> None:
    grammars = byte_grammars()
    for param in ("response_format", "structured_outputs"):
        with pytest.raises(InvalidParameter) as refused:
            grammars.grammar(StructuredOutput(regex="(", param=param))
        assert refused.value.param == param
    assert len(counted.seen) == 1


def test_the_least_recently_used_goes_first(counted: CountedText) -> None:
    grammars = byte_grammars(CompileLimits(num_cached=2))
    for regex in ("a", "b", "a", "c", "a", "b"):
        grammars.grammar(StructuredOutput(regex=regex))
    assert [wanted.text for wanted in counted.seen] == ["a", "b", "c", "b"]


def test_those_that_wait_are_bounded(counted: CountedText) -> None:
    grammars = byte_grammars(CompileLimits(num_pending=2))
    counted.go_on.clear()
    asked: list[Future[Any]] = [grammars.prepare(StructuredOutput(regex=regex)) for regex in ("a", "b")]
    with pytest.raises(QueueFull) as refused:
        grammars.prepare(StructuredOutput(regex="c"))
    assert (refused.value.waiting, refused.value.limit, refused.value.unit) == (2, 2, "grammars")
    counted.go_on.set()
    for future in asked:
        future.result(30)
    grammars.grammar(StructuredOutput(regex="c"))


def test_who_cancels_takes_it_from_nobody_else(counted: CountedText) -> None:
    grammars = byte_grammars()
    counted.go_on.clear()
    one, other = (grammars.prepare(StructuredOutput(regex="a")) for _ in range(2))
    assert one.cancel()
    counted.go_on.set()
    assert other.result(30) is not None
    assert len(counted.seen) == 1


def test_what_nobody_waits_for_any_more_is_not_begun_and_frees_its_place(counted: CountedText) -> None:
    grammars = byte_grammars(CompileLimits(num_pending=NUM_THREADS + 1))
    grammars.warm_up()
    counted.go_on.clear()
    begun = [grammars.prepare(StructuredOutput(regex=regex)) for regex in "ab"]
    given_up = [grammars.prepare(StructuredOutput(regex="c")) for _ in range(2)]
    with pytest.raises(QueueFull):
        grammars.prepare(StructuredOutput(regex="d"))
    assert given_up[0].cancel()
    with pytest.raises(QueueFull):  # the other one still waits for it
        grammars.prepare(StructuredOutput(regex="d"))
    assert given_up[1].cancel()
    last = grammars.prepare(StructuredOutput(regex="d"))
    counted.go_on.set()
    assert all(future.result(30) is not None for future in (*begun, last))
    assert sorted(wanted.text for wanted in counted.seen) == ["a", "b", "d"]
    assert grammars.grammar(StructuredOutput(regex="c")) is not None


def test_what_is_being_compiled_is_not_evicted(counted: CountedText) -> None:
    grammars = byte_grammars(CompileLimits(num_cached=1))
    counted.go_on.clear()
    first = grammars.prepare(StructuredOutput(regex="a"))
    others = [grammars.prepare(StructuredOutput(regex=regex)) for regex in "bc"]
    again = grammars.prepare(StructuredOutput(regex="a"))
    counted.go_on.set()
    assert again.result(30) is first.result(30)
    assert all(future.result(30) is not None for future in others)
    assert sorted(wanted.text for wanted in counted.seen) == ["a", "b", "c"]


def test_a_fault_of_ours_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(wanted: StructuredOutput) -> str:
        raise OSError("no process can be started")

    grammars = byte_grammars()
    with monkeypatch.context() as patch:
        patch.setattr(compiler_module, "grammar_text", broken)
        with pytest.raises(OSError, match="no process"):
            grammars.grammar(StructuredOutput(regex="a"))
    assert grammars.grammar(StructuredOutput(regex="a")) is not None


def test_a_vocabulary_that_failed_once_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise MemoryError("no room for the vocabulary")

    with monkeypatch.context() as patch:
        patch.setattr(compiler_module, "mask_vocabulary", broken)
        grammars = byte_grammars()
        with pytest.raises(MemoryError, match="no room"):
            grammars.grammar(StructuredOutput(regex="a"))
    assert grammars.grammar(StructuredOutput(regex="a")) is not None


def test_a_compilation_without_end_is_ended_and_the_next_one_works() -> None:
    grammars = byte_grammars(CompileLimits(seconds=1.0))
    with pytest.raises(InvalidParameter, match="takes over 1 s to compile, or too much memory"):
        grammars.grammar(StructuredOutput(json_schema=ENDLESS_TO_COMPILE))
    assert takes(grammars, "a", regex="a")


def test_none_needs_no_grammar() -> None:
    assert byte_grammars().prepare(None).result(0) is None


def test_a_worn_grammar_is_compiled_anew() -> None:
    """The answers in a grammar share a bounded store of states; 300 are gone after some 35 letters."""
    limits = CompileLimits()
    grammars = byte_grammars(replace(limits, library={**limits.library, "max_lexer_states": 300}))
    structure = {"regex": "[ab]*a[ab]{12}b[ab]{3}"}
    letters = iter(format(int.from_bytes(hashlib.sha256(b"letters").digest(), "big"), "0256b"))

    def write(num_letters: int, matcher: Matcher) -> Matcher:
        for letter in islice(letters, num_letters):
            assert allowed_ids(matcher) <= {ord("a"), ord("b"), EOS}
            matcher.accept(ord("ab"[int(letter)]))
        return matcher

    with pytest.raises(StructureBroken, match="too many states"):
        write(200, matcher_of(grammars, **structure))
    write(5, matcher_of(grammars, **structure))
