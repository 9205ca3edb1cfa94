"""The records of a bucket in memory, as its watch tells of them, and word of those that go.

Owns what becomes of an entry that can't be read: it is said once, and counts as none. Knows nothing of what a
record means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from baton_contracts.base import MalformedMessage

log = logging.getLogger(__name__)

R = TypeVar("R")


class RecordMirror(Generic[R]):
    """A Mirror of bucket_watch."""

    def __init__(self, read: Callable[[str, bytes], R | None], seen: Callable[[str, R], None]) -> None:
        """`read` gets an entry and its value; None: it counts as none. `seen` is told of each record that is
        new or may have changed, once it stands in `records`."""
        self._read = read
        self._seen = seen
        self.records: dict[str, R] = {}
        self._unreadable: dict[str, bytes] = {}
        self._leaving: dict[str, list[asyncio.Event]] = {}
        """Of entries whose end is waited for."""

    def put(self, entry: str, value: bytes, /) -> None:
        record = self._record(entry, value)
        if record is None:
            self.remove(entry)
            return
        self.records[entry] = record
        self._seen(entry, record)

    def _record(self, entry: str, value: bytes) -> R | None:
        try:
            return self._read(entry, value)
        except MalformedMessage as error:
            if self._unreadable.get(entry) != value:
                log.error("%s can't be read: %s", entry, error)
                self._unreadable[entry] = value
            return None

    def remove(self, entry: str, /) -> None:
        self.records.pop(entry, None)
        for leaving in self._leaving.pop(entry, ()):
            leaving.set()

    def replace(self, entries: Mapping[str, bytes], /) -> None:
        for entry in (self.records.keys() | self._leaving.keys()) - entries.keys():
            self.remove(entry)
        for entry in self._unreadable.keys() - entries.keys():
            del self._unreadable[entry]
        for entry, value in entries.items():
            self.put(entry, value)

    @contextmanager
    def leaving(self, entry: str) -> Generator[asyncio.Event, None, None]:
        """Set when the entry, which is in the bucket now, goes."""
        leaving = asyncio.Event()
        self._leaving.setdefault(entry, []).append(leaving)
        try:
            yield leaving
        finally:
            if not leaving.is_set():
                self._leaving[entry].remove(leaving)
                if not self._leaving[entry]:
                    del self._leaving[entry]
