"""The search for personal data as the actor sees it: long texts in threads, bounded in time, remembering.

Owns the threads and a memory of finds by the hash of the text (places and kinds only, never the text): a
conversation's history comes again with every turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from baton_input_guardrails.personal_data import Analysis, Span

_INLINE_CHARS = 500
"""Up to here the analysis takes about as long as handing it to a thread and back."""
_REMEMBERED_SPANS = 200
"""A text with more finds than this is not remembered: that bounds the memory."""


class Analyser(Protocol):
    def analyse(self, texts: Sequence[str], abandoned: Callable[[], bool] = ...) -> Analysis: ...


class SearchFailed(Exception):
    """The analyser failed or took too long. Says nothing of the text."""


@dataclass(frozen=True)
class Found:
    spans: dict[str, tuple[Span, ...]]
    """By text."""
    fresh: Analysis | None
    """What had to be analysed now; None if everything was remembered."""


class PersonalDataSearch:
    def __init__(
        self,
        analyser: Analyser,
        *,
        threads: int = 2,
        seconds: float = 20.0,
        remember: int = 4096,
        inline_chars: int = _INLINE_CHARS,
    ) -> None:
        self._analyser = analyser
        self._seconds = seconds
        self._remember = remember
        self._inline_chars = inline_chars
        self._running: list[Future[Analysis]] = []
        self._memory: OrderedDict[bytes, tuple[Span, ...]] = OrderedDict()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="personal-data")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def num_remembered(self) -> int:
        return len(self._memory)

    async def find(self, texts: Sequence[str]) -> Found:
        """Raises SearchFailed."""
        spans: dict[str, tuple[Span, ...]] = {}
        new: list[str] = []
        for text in dict.fromkeys(texts):
            known = self._recall(text)
            if known is None:
                new.append(text)
            else:
                spans[text] = known
        if not new:
            return Found(spans, None)
        fresh = await self._analyse(new)
        for text, found in zip(new, fresh.spans, strict=True):
            spans[text] = found
            self._memorise(text, found)
        return Found(spans, fresh)

    async def _analyse(self, texts: list[str]) -> Analysis:
        self._running = [one for one in self._running if not one.done()]
        # Beside a long text in a thread even a short one would wait for the words they share.
        inline = not self._running and sum(map(len, texts)) <= self._inline_chars
        try:
            return self._analyser.analyse(texts) if inline else await self._in_thread(texts)
        except TimeoutError:
            raise SearchFailed(f"took longer than {self._seconds:.0f} s") from None
        except Exception as error:  # whatever a recogniser throws: the rail has failed
            raise SearchFailed(type(error).__name__) from error

    async def _in_thread(self, texts: list[str]) -> Analysis:
        abandoned = threading.Event()
        running = self._threads.submit(self._analyser.analyse, texts, abandoned.is_set)
        self._running.append(running)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(running)
        finally:
            abandoned.set()

    def _recall(self, text: str) -> tuple[Span, ...] | None:
        if not text.strip():
            return ()
        key = _key(text)
        if key in self._memory:
            self._memory.move_to_end(key)
        return self._memory.get(key)

    def _memorise(self, text: str, spans: tuple[Span, ...]) -> None:
        if len(spans) > _REMEMBERED_SPANS:
            return
        self._memory[_key(text)] = spans
        while len(self._memory) > self._remember:
            self._memory.popitem(last=False)


def _key(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
