"""Structures to grammars, off the engine's loop. Owns the threads, the bounds in time and size, the cache;
knows no requests.

    known → at once
    new   → a trial in a process that can be ended (`trials.py`), then compiled here over the vocabulary

A grammar is compiled once, however many ask for it at the same time; a refusal is remembered like a grammar.
What nobody waits for any more, and has not begun, is not begun.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from baton_engine.errors import QueueFull
from baton_engine.structured.grammar_text import grammar_text
from baton_engine.structured.matcher import Grammar, shortened
from baton_engine.structured.output import StructuredOutput, UnusableStructure
from baton_engine.structured.trials import Trials
from baton_engine.structured.vocabulary import mask_vocabulary
from baton_engine.text_face import TextTokenizer

NUM_THREADS = 2


def _library_limits() -> dict[str, Any]:
    """Bounds of one step's mask at some 10 ms and of a grammar's memory at some 50 MB: see LLParserLimits."""
    return {
        "initial_lexer_fuel": 1_000_000,
        "step_lexer_fuel": 100_000,
        "step_max_items": 50_000,
        "max_lexer_states": 25_000,
        "max_grammar_size": 200_000,
        "verbose_errors": False,
    }


@dataclass(frozen=True)
class CompileLimits:
    """library: the fields of llguidance's LLParserLimits."""

    seconds: float = 5.0
    num_cached: int = 128
    num_pending: int = 64
    library: dict[str, Any] = field(default_factory=_library_limits)


@dataclass(frozen=True)
class _Refused:
    """Without the name of a parameter: the same structure may be asked for under several."""

    why: str


_Key = tuple[str, str, str]
_Outcome = Grammar | _Refused


@dataclass(eq=False)
class _Compilation:
    """num_waiting: those who asked and have not cancelled; under the compiler's lock."""

    key: _Key
    outcome: Future[_Outcome]
    num_waiting: int = 0

    @property
    def is_worn(self) -> bool:
        if not self.outcome.done() or self.outcome.exception() is not None:
            return False
        outcome = self.outcome.result()
        return isinstance(outcome, Grammar) and outcome.is_worn


class GrammarCompiler:
    """Thread-safe. Its threads, and their processes, start when first needed and end with it."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        vocab_size: int,
        end_token_ids: frozenset[int],
        limits: CompileLimits | None = None,
    ) -> None:
        self._limits = limits or CompileLimits()
        self._end_token_ids = end_token_ids
        self._library_limits = LLParserLimits(**self._limits.library)
        self._lock = threading.Lock()
        self._pending = 0
        self._compilations: OrderedDict[_Key, _Compilation] = OrderedDict()  # least recently asked for first
        self._trials = threading.local()
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="baton-grammar")
        self._vocabulary: Future[LLTokenizer] | None = None
        self._new_vocabulary = lambda: mask_vocabulary(tokenizer, vocab_size, end_token_ids)

    def warm_up(self) -> None:
        """Begins what all grammars need; returns at once."""
        with self._lock:
            self._begin_vocabulary()

    def prepare(self, wanted: StructuredOutput | None) -> Future[Grammar | None]:
        """Done when `wanted` has its grammar; its exception is InvalidParameter. The caller's own: to cancel
        it takes the grammar from nobody else. Raises QueueFull.
        """
        answer: Future[Grammar | None] = Future()
        if wanted is None:
            answer.set_result(None)
            return answer

        def pass_on(done: Future[_Outcome]) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            error = done.exception()
            outcome = None if error else done.result()
            if isinstance(outcome, Grammar):
                answer.set_result(outcome)
            else:
                answer.set_exception(error or wanted.refusal(outcome.why if outcome else ""))

        def lose_interest(done: Future[Grammar | None]) -> None:
            if done.cancelled():
                self._leave(compilation)

        compilation = self._join(wanted)
        answer.add_done_callback(lose_interest)
        compilation.outcome.add_done_callback(pass_on)
        return answer

    def grammar(self, wanted: StructuredOutput | None) -> Grammar | None:
        """Waits for the compilation where there was none before. Raises InvalidParameter or QueueFull."""
        return self.prepare(wanted).result()

    def _join(self, wanted: StructuredOutput) -> _Compilation:
        with self._lock:
            found = self._compilations.get(wanted.key)
            if found is not None and not found.is_worn:
                self._compilations.move_to_end(wanted.key)
                found.num_waiting += 1
                return found
            if self._pending >= self._limits.num_pending:
                raise QueueFull(self._pending, self._limits.num_pending, "grammars")
            self._pending += 1
            outcome = self._pool.submit(self._compile, wanted, self._begin_vocabulary())
            begun = self._compilations[wanted.key] = _Compilation(wanted.key, outcome, num_waiting=1)
            self._evict()
        outcome.add_done_callback(lambda _: self._compiled(begun))
        return begun

    def _leave(self, compilation: _Compilation) -> None:
        with self._lock:
            compilation.num_waiting -= 1
            if compilation.num_waiting or compilation.outcome.running() or compilation.outcome.done():
                return
            self._forget(compilation)  # before the cancel: nobody may join it any more
        compilation.outcome.cancel()

    def _compiled(self, compilation: _Compilation) -> None:
        with self._lock:
            self._pending -= 1
            if compilation.outcome.cancelled() or compilation.outcome.exception() is not None:
                self._forget(compilation)  # our fault, not the grammar's: the next one may have more luck
            self._evict()

    def _forget(self, compilation: _Compilation) -> None:
        if self._compilations.get(compilation.key) is compilation:
            del self._compilations[compilation.key]

    def _evict(self) -> None:
        """What is still being compiled stays, over the bound if need be: else it would be compiled twice."""
        surplus = len(self._compilations) - self._limits.num_cached
        if surplus > 0:
            done = (each for each in self._compilations.values() if each.outcome.done())
            for compilation in list(islice(done, surplus)):
                self._forget(compilation)

    def _begin_vocabulary(self) -> Future[LLTokenizer]:
        begun = self._vocabulary
        failed = begun is not None and begun.done() and begun.exception() is not None
        if (begun is None or failed) and self._end_token_ids:
            self._vocabulary = self._pool.submit(self._new_vocabulary)
        return self._vocabulary or Future()

    # Below runs in a thread of the pool.

    def _compile(self, wanted: StructuredOutput, vocabulary: Future[LLTokenizer]) -> _Outcome:
        if not self._end_token_ids:
            return _Refused("this model has no end token that could end a structure.")
        try:
            text = grammar_text(wanted)
            self._trials_of_thread().check(text)
        except UnusableStructure as error:
            return _Refused(shortened(str(error)))
        matcher = LLMatcher(vocabulary.result(), text, log_level=0, limits=self._library_limits)
        if not matcher.is_error():
            matcher.compute_bitmask()  # what the first step of each answer would have to build
        if matcher.is_error():
            return _Refused(shortened(matcher.get_error()))
        return Grammar(matcher)

    def _trials_of_thread(self) -> Trials:
        trials: Trials | None = getattr(self._trials, "own", None)
        if trials is None:
            trials = self._trials.own = Trials(self._limits.library, self._limits.seconds)
        return trials
