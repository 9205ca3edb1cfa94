"""How much of the stream TRACE is read for the list of the newest traces."""

from __future__ import annotations

import json

import pytest

from baton_common.errors import RequestFailed
from baton_trace_console.archive import PAGE_MESSAGES, TAIL_PAGES, Archive
from tests.support.traces import make_batch, make_span


class FakeStream:
    """As many batches as wanted, three a trace, numbered from 1; each page takes `page_seconds`."""

    def __init__(
        self, num_messages: int, page_seconds: float = 0.0, tenants: tuple[str, ...] = ("acme",)
    ) -> None:
        self._num_messages = num_messages
        self._page_seconds = page_seconds
        self._tenants = tenants
        self.now = 0.0
        self.asked: list[tuple[int, int]] = []

    def archive(self) -> Archive:
        return Archive(self, lambda: self.now)  # type: ignore[arg-type]

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> bytes:
        first = 1 if self._num_messages else 0
        state = {"messages": self._num_messages, "first_seq": first, "last_seq": self._num_messages}
        return json.dumps({"state": state}).encode()

    async def request_many(self, subject: str, payload: bytes, *, timeout: float, enough: int) -> list[bytes]:
        asked = json.loads(payload)
        first, count = asked["seq"], asked["batch"]
        self.asked.append((first, count))
        self.now += self._page_seconds
        if self._page_seconds > timeout:
            return []
        return [self._message(seq) for seq in range(first, min(first + count, self._num_messages + 1))]

    def _message(self, seq: int) -> bytes:
        trace = (seq - 1) // 3
        tenant = self._tenants[trace % len(self._tenants)]
        return make_batch(f"{trace + 1:032x}", make_span(2, float(seq), seq + 0.5), tenant_id=tenant).encode()


async def test_as_many_pages_are_read_as_are_needed_and_one_more() -> None:
    stream = FakeStream(10_000)
    batches = await stream.archive().newest_of("acme", 20)
    assert stream.asked == [(9751, PAGE_MESSAGES), (9501, PAGE_MESSAGES)]
    assert len(batches) == 2 * PAGE_MESSAGES


async def test_among_many_others_it_looks_back_only_so_far() -> None:
    stream = FakeStream(10_000, tenants=("acme", *["rival"] * 99))
    batches = await stream.archive().newest_of("acme", 20)
    assert len(stream.asked) == TAIL_PAGES
    assert {batch.request_id for batch in batches} == {
        f"{trace + 1:032x}" for trace in range(2700, 3333, 100)
    }


@pytest.mark.parametrize("num_messages", [0, 1, 251])
async def test_a_short_stream_is_read_whole_and_once(num_messages: int) -> None:
    stream = FakeStream(num_messages)
    batches = await stream.archive().newest_of("acme", 100)
    assert len(batches) == num_messages
    assert sum(count for _, count in stream.asked) == num_messages


async def test_what_was_read_is_listed_when_time_runs_out() -> None:
    stream = FakeStream(10_000, page_seconds=0.9)
    batches = await stream.archive().newest_of("acme", 100)
    assert len(batches) == 2 * PAGE_MESSAGES, "two pages of 0.9 s; the third would end after 2 s"
    with pytest.raises(RequestFailed, match="within 2 s"):
        await FakeStream(10_000, page_seconds=2.1).archive().newest_of("acme", 100)
