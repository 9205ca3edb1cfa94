"""The events of a response in the background as its maker writes them: once, in order, in bounds."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from baton_edge_api.background import event_log
from baton_edge_api.background.event_log import END, EventLog
from baton_edge_api.bucket import BucketFull
from baton_edge_api.responses.events import event
from tests.support.memory_bucket import MemoryBucket

ENTRY = "acme.key"


class Bucket(MemoryBucket):
    is_full = False

    async def replace(self, entry: str, value: bytes, revision: int) -> int:
        if self.is_full:
            raise BucketFull(entry)
        return await super().replace(entry, value, revision)

    @property
    def pieces(self) -> list[bytes]:
        return [value for value, _ in self.values.values()]


def an_event(number: int, text: str = "") -> bytes:
    return event("response.queued", {"text": text}, number)


def a_log(bucket: Bucket, *, max_piece_bytes: int = 10_000) -> tuple[EventLog, list[str]]:
    lost: list[str] = []
    log = EventLog(cast(Any, bucket), ENTRY, max_piece_bytes, lost=lambda: lost.append("lost"))
    return log, lost


async def written(log: EventLog) -> None:
    log.end()
    async with asyncio.timeout(20):
        await log.write()


async def test_events_that_wait_are_one_piece_and_comments_are_none() -> None:
    bucket = Bucket()
    log, lost = a_log(bucket)
    log.add(an_event(0) + an_event(1))
    log.add(b": ping\n\n")
    log.add(an_event(2))
    await written(log)
    assert bucket.pieces == [an_event(0) + an_event(1) + an_event(2), END]
    assert list(bucket.values) == [f"{ENTRY}.0", f"{ENTRY}.1"]
    assert not lost


async def test_a_large_event_is_a_piece_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of the bus has room for one as large as may be, not for others before it."""
    monkeypatch.setattr(event_log, "_PIECE_BYTES", 1000)
    bucket = Bucket()
    log, _ = a_log(bucket)
    events = [an_event(0), an_event(1), an_event(2, "x" * 5000), an_event(3)]
    log.add(b"".join(events))
    await written(log)
    assert bucket.pieces == [events[0] + events[1], events[2], events[3], END]


async def test_who_takes_it_over_goes_on_behind_what_was_written() -> None:
    bucket = Bucket()
    first, _ = a_log(bucket)
    first.add(an_event(0) + an_event(1))
    writing = asyncio.create_task(first.write())
    while not bucket.pieces:
        await asyncio.sleep(0)
    writing.cancel()
    second, lost = a_log(bucket)
    await second.open()
    assert second.num_events == 2
    second.add(an_event(0) + an_event(1) + an_event(2))
    await written(second)
    assert bucket.pieces[1:] == [an_event(2), END]
    assert not lost


async def test_who_finds_anothers_piece_in_its_place_writes_no_longer() -> None:
    bucket = Bucket()
    (first, kept), (second, lost) = a_log(bucket), a_log(bucket)
    for number, log in enumerate((first, second)):
        log.add(an_event(0, f"in the words of {number}"))
        await written(log)
    assert (kept, lost) == ([], ["lost"])
    assert bucket.pieces == [an_event(0, "in the words of 0"), END]


async def test_a_piece_whose_answer_was_lost_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_AGAIN_SECONDS", 0.0)
    bucket = Bucket(lose_answer=True)
    log, lost = a_log(bucket)
    log.add(an_event(0))
    await written(log)
    assert (bucket.pieces, lost) == ([an_event(0), END], [])


async def test_what_is_too_much_is_left_out_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_MAX_LOG_BYTES", 1000)
    for too_much in ([an_event(1, "x" * 300)], [an_event(number, "x" * 100) for number in range(1, 20)]):
        bucket = Bucket()
        log, lost = a_log(bucket, max_piece_bytes=300)
        log.add(an_event(0))
        for piece in too_much:
            log.add(piece)
        log.add(an_event(len(too_much) + 1))
        await written(log)
        kept = b"".join(bucket.pieces)
        assert kept.startswith(an_event(0))
        assert kept.endswith(END)
        assert len(kept) < 1000 + len(END)
        assert an_event(len(too_much) + 1) not in kept
        assert not lost


async def test_a_store_without_space_does_not_hold_the_response_up() -> None:
    bucket = Bucket()
    bucket.is_full = True
    log, lost = a_log(bucket)
    log.add(an_event(0))
    await written(log)
    assert (bucket.pieces, lost) == ([], [])
