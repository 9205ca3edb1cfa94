"""The fate of each message: committed then acknowledged, set aside, or given back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from baton_after_answer import consumer as consumer_module
from baton_after_answer.actor import BooksDesk, InDatabaseThread
from baton_after_answer.books import BooksAway, BooksSlow, Entry, RowRefused
from baton_after_answer.consumer import Consumer
from baton_after_answer.pull import Delivery, PullInbox
from baton_common.bus import BusMessage
from baton_common.catalog import load_catalog
from baton_common.clock import Clock
from baton_common.errors import RequestFailed
from baton_common.memory_bus import MemoryBus
from baton_contracts.queries import BooksQuery, BooksReply
from baton_contracts.records import ConversationRecord, UsageRecord
from baton_contracts.spans import SpanBatch
from tests.support.after_records import conversation_record, subject_of, usage_record
from tests.support.relay import HandClock, eventually

STORED_AT_NANOSECONDS = 1_999_750_000_000
NEXT = "$JS.API.CONSUMER.MSG.NEXT.AFTER.after_answer"


@dataclass
class Desk:
    """A consumer with everything around it in memory: `events` is what happened, in order."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    events: list[str] = field(default_factory=list)
    spans: list[SpanBatch] = field(default_factory=list)
    fail: list[Exception] = field(default_factory=list)
    bad_models: set[str] = field(default_factory=set)
    written: list[Entry] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def build(self, batch: int = 10) -> Consumer:
        await self.bus.subscribe("$JS.ACK.>", self._on_ack)
        self.inbox = PullInbox(
            self.bus, stream="AFTER", consumer="after_answer", inbox_prefix="_INBOX_x", batch=batch
        )
        return Consumer(
            self.inbox,
            instance="after_answer-1",
            clock=HandClock(2000.0).clock,
            write=self._write,
            publish_spans=self._publish_spans,
            asked=self._until_asked,
            on_commit=lambda: self.events.append("noted"),
            ensure_queue=self._ensure_queue,
            retry_seconds=2.0,
            price_of=load_catalog().price_of,
        )

    def delivery(self, record: UsageRecord | ConversationRecord, number: int = 1) -> Delivery:
        return Delivery(self.bus, subject_of(record), record.encode(), ack_subject(number))

    def _on_ack(self, message: BusMessage) -> None:
        self.events.append(f"{message.subject.split('.')[-3]}:{message.payload.decode()}")

    async def _write(self, entry: Entry) -> None:
        if self.fail:
            raise self.fail.pop(0)
        if any(row["model"] in self.bad_models for row in entry.ledger):
            raise RowRefused("bad row")
        self.written.append(entry)
        self.events.append(f"commit {len(entry.ledger)}+{len(entry.turns)}+{len(entry.rejected)}")

    async def _publish_spans(self, batch: SpanBatch) -> None:
        self.spans.append(batch)

    async def _until_asked(self) -> None:
        await self.asked.wait()

    async def _ensure_queue(self) -> None:
        self.events.append("queue made")


def ack_subject(number: int) -> str:
    return f"$JS.ACK.AFTER.after_answer.1.{number}.{number}.{STORED_AT_NANOSECONDS}.0"


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.AFTER.after_answer.1.5.5.1999750000000.3",
        "$JS.ACK._.aBcD.AFTER.after_answer.1.5.5.1999750000000.3",
        "$JS.ACK.hub.aBcD.AFTER.after_answer.1.5.5.1999750000000.3.rAnDoM",
    ],
)
def test_a_delivery_tells_when_it_was_stored(reply: str) -> None:
    assert Delivery(MemoryBus(), "s", b"", reply).stored_at == 1999.75


async def settled(desk: Desk, *deliveries: Delivery) -> list[str]:
    consumer = await desk.build()
    await consumer.settle(deliveries)
    await asyncio.sleep(0)
    return desk.events


async def test_a_batch_is_one_transaction_and_acknowledged_only_after_it() -> None:
    desk = Desk()
    events = await settled(desk, desk.delivery(usage_record(), 1), desk.delivery(conversation_record(), 2))
    assert events[0] == "commit 1+1+0"
    assert sorted(events[1:]) == ["1:+ACK", "2:+ACK", "noted"]
    assert desk.spans[0].spans[0].duration == 0.25  # stored at 1999.75, taken at 2000
    assert [span.name for batch in desk.spans for span in batch.spans] == [
        "queue", "ledger", "queue", "conversation",
    ]  # fmt: skip


async def test_a_message_that_is_no_record_is_set_aside_and_the_rest_is_written() -> None:
    desk = Desk()
    poison = Delivery(desk.bus, f"baton.v1.after.usage.{'0' * 32}", b"\xff{", ack_subject(1))
    consumer = await desk.build()
    await consumer.settle([poison, desk.delivery(usage_record(), 2)])
    await asyncio.sleep(0)
    assert desk.events[0] == "commit 1+0+1"
    assert sorted(desk.events[1:]) == ["1:+TERM", "2:+ACK", "noted"]
    assert desk.written[0].rejected[0]["payload"] == b"\xff{"
    assert (consumer.counts.committed, consumer.counts.rejected) == (1, 1)


async def test_with_the_database_away_all_go_back_to_the_queue_for_a_while() -> None:
    desk = Desk(fail=[BooksAway("no route to host")])
    events = await settled(desk, desk.delivery(usage_record(), 1), desk.delivery(usage_record(), 2))
    assert desk.written == []
    assert desk.spans == []
    for number, event in enumerate(events, start=1):
        key, _, word = event.partition(":")
        assert key == str(number)
        assert word.startswith("-NAK ")
        assert json.loads(word.removeprefix("-NAK ")) == {"delay": 2_000_000_000}


async def test_a_row_that_the_database_refuses_does_not_keep_the_others_out() -> None:
    desk = Desk(bad_models={"bad"})
    events = await settled(
        desk,
        desk.delivery(usage_record(), 1),
        desk.delivery(usage_record(model="bad"), 2),
        desk.delivery(usage_record(), 3),
    )
    assert [event for event in events if event.startswith("commit")] == [
        "commit 1+0+0",
        "commit 0+0+1",
        "commit 1+0+0",
    ]
    assert {event for event in events if ":" in event} == {"1:+ACK", "2:+TERM", "3:+ACK"}


async def test_the_loop_takes_what_the_server_delivers_and_asks_for_more() -> None:
    desk = Desk()
    asked: list[BusMessage] = []
    await desk.bus.subscribe(NEXT, asked.append)
    consumer = await desk.build(batch=2)
    await desk.inbox.start()
    loop = asyncio.create_task(consumer.run())
    await eventually(lambda: len(asked) == 1)
    assert json.loads(asked[0].payload) == {"batch": 2, "expires": 2_000_000_000}
    for number in (1, 2):
        record = usage_record()
        await desk.bus.publish(asked[0].reply, record.encode(), reply=ack_subject(number))
        # The memory bus keeps the inbox as the subject, so the record is set aside: the loop is what counts.
    await eventually(lambda: len(asked) == 2)
    assert sum(event.endswith("+TERM") for event in desk.events) == 2
    await consumer.stop()
    await loop


async def test_a_pull_that_the_server_ends_at_once_makes_the_queue_anew() -> None:
    desk = Desk()
    asked: list[BusMessage] = []
    await desk.bus.subscribe(NEXT, asked.append)
    consumer = await desk.build()
    await desk.inbox.start()
    loop = asyncio.create_task(consumer.run())
    await eventually(lambda: len(asked) == 1)
    await desk.bus.publish(asked[0].reply, b"")
    await eventually(lambda: "queue made" in desk.events)
    await eventually(lambda: len(asked) == 2)
    await consumer.stop()
    await loop


async def test_what_arrived_but_was_not_started_goes_back_when_the_service_ends() -> None:
    desk = Desk()
    asked: list[BusMessage] = []
    await desk.bus.subscribe(NEXT, asked.append)
    consumer = await desk.build()
    await desk.inbox.start()
    waiting = asyncio.create_task(desk.inbox.next_batch())
    await eventually(lambda: len(asked) == 1)
    await desk.bus.publish(asked[0].reply, b"{}", reply=ack_subject(7))
    await waiting
    await desk.bus.publish(asked[0].reply, b"{}", reply=ack_subject(8))
    await asyncio.sleep(0)
    await desk.inbox.close()
    await asyncio.sleep(0)
    assert [event.partition(" ")[0] for event in desk.events] == ["8:-NAK"]
    assert await desk.inbox.next_batch() == []
    await consumer.run()  # ends at once: the inbox is closed


class _Books:
    def conversation(self, tenant_id: str, conversation_id: str) -> tuple[()]:
        raise BooksAway(f"{tenant_id}/{conversation_id}")


async def _in_thread(work: object) -> BooksReply:
    return work()  # type: ignore[operator]


async def _no_barrier() -> None:
    return


def _desk(in_sums_thread: InDatabaseThread = _in_thread) -> BooksDesk:
    books = _Books()
    return BooksDesk(
        books,  # type: ignore[arg-type]
        barrier=_no_barrier,
        in_thread=_in_thread,
        in_sums_thread=in_sums_thread,
        clock=Clock(),
    )


async def test_a_question_without_a_conversation_is_told_so() -> None:
    desk = _desk()
    with pytest.raises(RequestFailed) as caught:
        await desk.answer("0" * 32, BooksQuery(kind="conversation", tenant_id="acme"))
    assert (caught.value.error.code, caught.value.error.param) == (
        "missing_required_parameter",
        "conversation_id",
    )


async def test_a_question_while_the_database_is_away_is_a_503_with_a_time() -> None:
    desk = _desk()
    with pytest.raises(RequestFailed) as caught:
        await desk.answer("0" * 32, BooksQuery(kind="conversation", tenant_id="acme", conversation_id="c"))
    assert (caught.value.error.status, caught.value.error.retry_after_seconds) == (503, 2)


async def test_sums_that_take_too_long_are_a_503_that_says_what_to_ask() -> None:
    async def too_long(_: object) -> BooksReply:
        raise BooksSlow

    desk = _desk(in_sums_thread=too_long)
    with pytest.raises(RequestFailed, match="Ask for less: by `since` and `until`") as caught:
        await desk.answer("0" * 32, BooksQuery(kind="usage_sums", tenant_id="acme", by=("key",)))
    assert caught.value.error.status == 503


async def test_sums_take_half_of_the_turns_at_most() -> None:
    gate, begun = asyncio.Event(), list[object]()

    async def slow(work: object) -> BooksReply:
        begun.append(work)
        await gate.wait()
        return BooksReply()

    desk = _desk(in_sums_thread=slow)
    sums = BooksQuery(kind="usage_sums", tenant_id="acme", by=("key",))
    asking = [asyncio.create_task(desk.answer("0" * 32, sums)) for _ in range(8)]
    await eventually(lambda: len(begun) == 8)
    with pytest.raises(RequestFailed, match="Try again shortly") as caught:
        await desk.answer("0" * 32, sums)
    assert (caught.value.error.code, caught.value.error.status) == ("stop_busy", 503)
    gate.set()
    await asyncio.gather(*asking)
    assert await desk.answer("0" * 32, sums) == BooksReply()


@pytest.mark.parametrize("kind", ["response", "response_chain", "delete_response"])
async def test_a_question_without_a_response_is_told_so(kind: str) -> None:
    desk = _desk()
    with pytest.raises(RequestFailed) as caught:
        await desk.answer("0" * 32, BooksQuery.model_validate({"kind": kind, "tenant_id": "acme"}))
    assert caught.value.error.param == "response_id"


async def test_a_page_that_no_answer_has_named_is_the_clients_mistake() -> None:
    desk = _desk()
    with pytest.raises(RequestFailed) as caught:
        await desk.answer("0" * 32, BooksQuery(kind="usage_sums", tenant_id="acme", page="next"))
    assert (caught.value.error.status, caught.value.error.param) == (400, "page")


async def test_a_row_without_a_cost_gets_the_catalogs_and_a_cached_answer_costs_nothing() -> None:
    desk = Desk()
    consumer = await desk.build()
    own = usage_record(cost_picos=5)
    silent = usage_record(cost_picos=None)
    cached = usage_record(cost_picos=None, outcome="cache_hit", replica="cache")
    unknown = usage_record(cost_picos=None, model="nobody's")
    records = (own, silent, cached, unknown)
    await consumer.settle([desk.delivery(record, number) for number, record in enumerate(records, 1)])
    # (42 − 16) × 0.02 + 16 × 0.01 + 7 × 0.04 dollars for a million tokens
    assert [row["cost_picos"] for row in desk.written[0].ledger] == [5, 960_000, 0, 0]


class _Arriving(PullInbox):
    """First one delivery, then what has come since."""

    def __init__(self, desk: Desk, first: Delivery, *later: Delivery, batch: int = 10) -> None:
        super().__init__(desk.bus, stream="AFTER", consumer="a", inbox_prefix="_INBOX_x", batch=batch)
        self._first, self._later = [first], list(later)

    async def next_batch(self) -> list[Delivery]:
        if not self._first:
            await self.close()
            return []
        return [self._first.pop()]

    def take(self) -> list[Delivery]:
        return self._later


async def _commits(desk: Desk, inbox: PullInbox) -> list[str]:
    consumer = await desk.build()
    consumer._inbox = inbox  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(20):
        await consumer.run()
    return [event for event in desk.events if event.startswith("commit")]


async def test_a_ledger_row_waits_for_its_conversation_and_shares_its_commit() -> None:
    desk = Desk()
    inbox = _Arriving(desk, desk.delivery(usage_record(), 1), desk.delivery(conversation_record(), 2))
    assert await _commits(desk, inbox) == ["commit 1+1+0"]


@pytest.fixture
def long_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "GATHER_SECONDS", 3600.0)


@pytest.mark.usefixtures("long_gathering")
async def test_ledger_rows_are_written_at_once_when_somebody_asks_the_books() -> None:
    desk = Desk()
    inbox = _Arriving(desk, desk.delivery(usage_record(), 1), desk.delivery(usage_record(), 2))
    running = asyncio.create_task(_commits(desk, inbox))
    await asyncio.sleep(0)
    assert not desk.written
    desk.asked.set()
    assert await running == ["commit 2+0+0"]


@pytest.mark.usefixtures("long_gathering")
async def test_a_full_batch_waits_for_nothing_nor_does_what_others_may_read() -> None:
    desk = Desk()
    assert await _commits(desk, _Arriving(desk, desk.delivery(usage_record(), 1), batch=1)) == [
        "commit 1+0+0"
    ]
    other = Desk()
    assert await _commits(other, _Arriving(other, other.delivery(conversation_record(), 1))) == [
        "commit 0+1+0"
    ]
