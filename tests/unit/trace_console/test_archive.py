"""What of the stream TRACE is read for a list of traces, and what is found there."""

from __future__ import annotations

import json

import pytest

from baton_common.errors import RequestFailed
from baton_contracts import subjects
from baton_trace_console.archive import MAX_PAGES, PAGE_MESSAGES, Archive
from baton_trace_console.list_question import ListAsked
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
        self.instead: dict[int, bytes] = {}

    def archive(self) -> Archive:
        return Archive(self, lambda: self.now)  # type: ignore[arg-type]

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> bytes:
        first = 1 if self._num_messages else 0
        state = {"messages": self._num_messages, "first_seq": first, "last_seq": self._num_messages}
        return json.dumps({"state": state}).encode()

    async def request_many(self, subject: str, payload: bytes, *, timeout: float, enough: int) -> list[bytes]:
        asked = json.loads(payload)
        first, count = asked["seq"], asked["batch"]
        if asked["next_by_subj"] != subjects.TRACE_ALL:
            return self._of_trace(int(asked["next_by_subj"].rpartition(".")[2], 16) - 1, first)
        self.asked.append((first, count))
        self.now += self._page_seconds
        if self._page_seconds > timeout:
            return []
        return [self._message(seq) for seq in range(first, min(first + count, self._num_messages + 1))]

    def _of_trace(self, trace: int, first: int) -> list[bytes]:
        numbers = range(max(first, 3 * trace + 1), min(3 * trace + 3, self._num_messages) + 1)
        return [self._message(seq) for seq in numbers]

    def _message(self, seq: int) -> bytes:
        """A trace begins at an even second of its own; every tenth one failed, as its third batch says."""
        if seq in self.instead:
            return self.instead[seq]
        trace = (seq - 1) // 3
        tenant = self._tenants[trace % len(self._tenants)]
        status = "error" if trace % 10 == 9 and seq % 3 == 0 else "ok"
        span = make_span(9, float(2 * trace), 2 * trace + 0.5, status=status)
        return make_batch(rid(trace), span, tenant_id=tenant).encode()


def rid(trace: int) -> str:
    return f"{trace + 1:032x}"


async def test_as_many_pages_are_read_as_are_needed() -> None:
    """Of 10,000 messages the last one is the only one of its trace; the twentieth ends at message 9944."""
    stream = FakeStream(10_000)
    newest = await stream.archive().newest_of("acme", ListAsked(limit=20))
    assert newest.request_ids == tuple(rid(trace) for trace in range(3333, 3313, -1))
    assert stream.asked == [(9751, PAGE_MESSAGES)]
    assert newest.next_page == 9945


async def test_the_next_page_goes_on_where_the_last_one_ended() -> None:
    """Each trace comes once, also one whose reports lie on both sides of a border."""
    archive, before = FakeStream(1000).archive(), None
    listed: list[str] = []
    while True:
        newest = await archive.newest_of("acme", ListAsked(limit=100, before=before))
        listed += newest.request_ids
        before = newest.next_page
        if before is None:
            break
    assert listed == [rid(trace) for trace in range(333, -1, -1)]


async def test_what_was_reported_of_another_time_puts_a_trace_on_no_page_before() -> None:
    """Trace 50 is messages 151 to 153: a page that ends before 152 has it if nobody asked for the others."""
    stream = FakeStream(300)
    asked = ListAsked(limit=100, before=152)
    assert rid(50) not in (await stream.archive().newest_of("acme", asked)).request_ids
    late = make_batch(rid(50), make_span(10, 500.0, 500.5)).encode()
    stream.instead = {152: late, 153: late}
    of_then = ListAsked(limit=100, before=152, until=400.0)
    assert (await stream.archive().newest_of("acme", of_then)).request_ids[0] == rid(50)


async def test_among_many_others_one_question_looks_back_only_so_far() -> None:
    stream = FakeStream(30_000, tenants=("acme", *["rival"] * 999))
    newest = await stream.archive().newest_of("acme", ListAsked(limit=20))
    assert len(stream.asked) == MAX_PAGES
    assert newest.request_ids == tuple(rid(trace) for trace in (9000, 8000, 7000))
    assert newest.next_page == 30_000 - MAX_PAGES * PAGE_MESSAGES + 1


async def test_what_failed_is_found_by_what_its_edge_says() -> None:
    newest = await FakeStream(3000).archive().newest_of("acme", ListAsked(limit=3, status="error"))
    assert newest.request_ids == tuple(rid(trace) for trace in (999, 989, 979))


async def test_of_a_time_nothing_is_read_that_was_told_before() -> None:
    """Traces 500 to 509 end between second 1000.5 and 1018.5."""
    stream = FakeStream(3000)
    asked = ListAsked(limit=100, since=1000.5, until=1020.5)
    newest = await stream.archive().newest_of("acme", asked)
    assert newest.request_ids == tuple(rid(trace) for trace in range(509, 499, -1))
    assert newest.next_page is None
    assert min(first for first, _ in stream.asked) > 1500 - PAGE_MESSAGES


async def test_of_a_time_a_page_that_is_full_is_not_the_last() -> None:
    """Traces 950 to 999 end at second 1900.5 or later; what was read for the first page reaches to 916."""
    archive = FakeStream(3000).archive()
    first = await archive.newest_of("acme", ListAsked(limit=20, since=1900.5))
    assert first.request_ids == tuple(rid(trace) for trace in range(999, 979, -1))
    assert first.next_page == 3 * 981, "the newest message of trace 980"
    second = await archive.newest_of("acme", ListAsked(limit=100, since=1900.5, before=first.next_page))
    assert set(range(950, 980)) <= {int(found, 16) - 1 for found in second.request_ids}
    assert second.next_page is None


@pytest.mark.parametrize("num_messages", [0, 1, 251])
async def test_a_short_stream_is_read_whole_and_once(num_messages: int) -> None:
    stream = FakeStream(num_messages)
    newest = await stream.archive().newest_of("acme", ListAsked(limit=100))
    assert len(newest.request_ids) == -(-num_messages // 3)
    assert newest.next_page is None
    assert sum(count for _, count in stream.asked) == num_messages


async def test_what_was_found_is_listed_when_time_runs_out() -> None:
    stream = FakeStream(10_000, page_seconds=0.9, tenants=("acme", *["rival"] * 9))
    newest = await stream.archive().newest_of("acme", ListAsked(limit=100))
    assert newest.next_page == 10_001 - 2 * PAGE_MESSAGES, "two pages of 0.9 s; the third would end after 2 s"
    assert len(newest.request_ids) == 17
    with pytest.raises(RequestFailed, match="within 2 s"):
        await FakeStream(10_000, page_seconds=2.1).archive().newest_of("acme", ListAsked())
