"""What the edge stores when a gateway is gone and nobody else has booked an answer that passed here."""

from __future__ import annotations

import pytest

from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.frames import End, FinishReason, Prologue, Usage
from baton_contracts.queries import BooksQuery, BooksReply
from baton_contracts.records import UsageRecord
from baton_edge_api import unbooked
from baton_edge_api.unbooked import Unbooked, record_of
from tests.support.after_records import usage_record
from tests.support.relay import make_envelope

USAGE = Usage(prompt_tokens=7, cached_tokens=3, completion_tokens=2)


def told(replica: str = "engine_worker-1", prompt_tokens: int | None = 7) -> Prologue:
    return Prologue(
        request_id="0" * 32,
        sender="output_guardrails-1",
        seq=0,
        model="m",
        replica=replica,
        gateway="llm_gateway-1",
        guard="output_guardrails-1",
        prompt_tokens=prompt_tokens,
    )


def end(reason: FinishReason = "stop") -> End:
    return End(request_id="0" * 32, sender="output_guardrails-1", seq=9, finish_reason=reason, usage=USAGE)


@pytest.mark.parametrize(
    ("replica", "last", "row"),
    [
        ("engine_worker-1", end(), ("finished", "stop", None, USAGE)),
        ("cache", end(), ("cache_hit", "stop", None, USAGE)),
        ("shared", end("length"), ("cache_hit", "length", None, USAGE)),
        ("far/0", end(), ("finished", "stop", None, USAGE)),
        ("far/0", end("cancelled"), ("cancelled", "cancelled", None, USAGE)),
        ("far/0", None, ("error", None, "stop_lost", Usage(prompt_tokens=7, completion_tokens=4))),
    ],
)
def test_what_the_row_says(replica: str, last: End | None, row: tuple[object, ...]) -> None:
    envelope = make_envelope()
    record = record_of(envelope, told(replica), last, num_heard=4, ended_at=envelope.sent_at + 2)
    assert (record.outcome, record.finish_reason, record.error_code, record.usage) == row
    assert (record.request_id, record.run_id, record.attempt) == (envelope.request_id, envelope.run_id, 1)
    assert (record.model, record.replica, record.tenant) == ("m", replica, envelope.tenant)
    assert record.ended_at - record.started_at == 2


@pytest.mark.parametrize(("numbers", "attempt"), [({"attempt": 2}, 2), ({"begun_by": 3}, 3)])
def test_it_stands_in_for_the_attempt_that_began_the_answer(numbers: dict[str, int], attempt: int) -> None:
    prologue = told("far/0").model_copy(update=numbers)
    assert record_of(make_envelope(), prologue, end(), num_heard=2, ended_at=9.0).attempt == attempt


class Books:
    """Knows these rows; `failures` questions are not answered."""

    def __init__(self, bus: MemoryBus, *rows: UsageRecord, failures: int = 0) -> None:
        self.bus, self.rows, self.failures = bus, rows, failures
        self.asked: list[BooksQuery] = []

    def on_query(self, message: BusMessage) -> None:
        query = BooksQuery.decode(message.payload)
        self.asked.append(query)
        wanted = {query.request_id, *query.more_request_ids}
        rows = tuple(
            row for row in self.rows if row.request_id in wanted and row.tenant.tenant_id == query.tenant_id
        )
        reply = BooksReply(usage=rows).encode() if len(self.asked) > self.failures else b"?"
        spawn(self.bus.publish(message.reply, reply))


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> MemoryBus:
    monkeypatch.setattr(unbooked, "OTHERS_SECONDS", 0)
    monkeypatch.setattr(unbooked, "FIRST_PAUSE_SECONDS", 0)
    return MemoryBus()


async def test_only_what_is_not_in_the_books_is_missing(bus: MemoryBus) -> None:
    booked, lost = usage_record(), usage_record()
    other_run = booked.model_copy(update={"run_id": "ffffffff"})
    books = Books(bus, booked)
    await bus.subscribe(subjects.BOOKS_ALL, books.on_query)
    assert await Unbooked(bus)([booked, lost, other_run]) == [lost, other_run]
    assert len(books.asked) == 1


async def test_each_tenant_is_looked_up_in_its_own_books_and_many_at_a_time(bus: MemoryBus) -> None:
    ours = [usage_record() for _ in range(unbooked.ASKED_AT_ONCE + 1)]
    tenant = ours[0].tenant.model_copy(update={"tenant_id": "other"})
    theirs = usage_record().model_copy(update={"tenant": tenant})
    books = Books(bus, *ours, theirs)
    await bus.subscribe(subjects.BOOKS_ALL, books.on_query)
    assert await Unbooked(bus)([*ours, theirs]) == []
    asked = [(query.tenant_id, 1 + len(query.more_request_ids)) for query in books.asked]
    assert asked == [(ours[0].tenant.tenant_id, 100), (ours[0].tenant.tenant_id, 1), ("other", 1)]


async def test_books_that_are_away_are_asked_again(bus: MemoryBus) -> None:
    lost = usage_record()
    books = Books(bus, failures=2)
    await bus.subscribe(subjects.BOOKS_ALL, books.on_query)
    assert await Unbooked(bus)([lost]) == [lost]
    assert len(books.asked) == 3


async def test_what_nobody_can_say_is_left_out(bus: MemoryBus, caplog: pytest.LogCaptureFixture) -> None:
    assert await Unbooked(bus)([usage_record()]) == []
    assert "whether 1 rows of a lost gateway are stored is not known" in caplog.text
