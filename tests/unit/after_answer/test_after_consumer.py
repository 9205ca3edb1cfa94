"""The fate of each message: committed then acknowledged, set aside, or given back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from baton_after_answer import consumer as consumer_module
from baton_after_answer.actor import BooksDesk, InDatabaseThread
from baton_after_answer.books import BooksAway, BooksSlow, Entry, RowRefused
from baton_after_answer.consumer import Consumer
from baton_after_answer.courtesy import Courtesy
from baton_after_answer.pull import Delivery, PullInbox
from baton_common.bus import BusMessage
from baton_common.catalog import load_catalog
from baton_common.clock import Clock
from baton_common.errors import RequestFailed
from baton_common.memory_bus import MemoryBus
from baton_contracts.queries import BooksQuery, BooksReply
from baton_contracts.records import ConversationRecord, UsageRecord
from baton_contracts.spans import SpanBatch
from tests.support.after_queue import QueueBus, ack_subject
from tests.support.after_records import AnyRecord, conversation_record, subject_of, usage_record
from tests.support.relay import HandClock, eventually


@dataclass
class Desk:
    """A consumer with everything around it in memory: `events` is what happened, in order."""

    bus: QueueBus = field(default_factory=QueueBus)
    events: list[str] = field(default_factory=list)
    spans: list[SpanBatch] = field(default_factory=list)
    fail: list[Exception] = field(default_factory=list)
    bad_models: set[str] = field(default_factory=set)
    written: list[Entry] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    num_given_way: int = 0

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
            courtesy=Courtesy(self.asked.is_set, self._give_way),
            ensure_queue=self._ensure_queue,
            retry_seconds=2.0,
            price_of=load_catalog().price_of,
        )

    def store(self, record: AnyRecord) -> None:
        self.bus.store(subject_of(record), record.encode())

    @property
    def commits(self) -> list[str]:
        return [event for event in self.events if event.startswith("commit")]

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
        """One question, one answer: the next time somebody has to ask again."""
        await self.asked.wait()
        self.asked.clear()

    def _give_way(self) -> None:
        self.num_given_way += 1

    async def _ensure_queue(self) -> None:
        self.events.append("queue made")


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


async def turns() -> None:
    """Whoever can go on without time passing does."""
    for _ in range(20):
        await asyncio.sleep(0)


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


@pytest.mark.parametrize(("num_rows", "is_asked", "times"), [(20, False, 9), (20, True, 0), (96, False, 0)])
async def test_a_small_batch_gives_way_every_few_rows_unless_somebody_waits_for_it(
    num_rows: int, is_asked: bool, times: int
) -> None:
    """Before it reads, acknowledges and reports; the database gives way by itself."""
    desk = Desk()
    if is_asked:
        desk.asked.set()
    await settled(desk, *(desk.delivery(usage_record(), number) for number in range(1, num_rows + 1)))
    assert (desk.num_given_way, desk.commits) == (times, [f"commit {num_rows}+0+0"])


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


@pytest.fixture
def long_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a question or a full batch makes it write."""
    monkeypatch.setattr(consumer_module, "GATHER_SECONDS", 3600.0)


@asynccontextmanager
async def running(desk: Desk, batch: int = 10) -> AsyncIterator[Consumer]:
    consumer = await desk.build(batch)
    await desk.inbox.start()
    loop = asyncio.create_task(consumer.run())
    yield consumer
    desk.asked.set()
    async with asyncio.timeout(20):
        await consumer.stop()
        await loop


@pytest.mark.usefixtures("long_gathering")
async def test_one_row_wakes_and_those_that_follow_come_together_with_the_batch() -> None:
    desk = Desk()
    async with running(desk):
        await eventually(lambda: len(desk.bus.pulls) == 1)
        assert desk.bus.pulls[0] == {"batch": 10, "no_wait": True, "expires": 2_000_000_000}
        for record in (usage_record(), conversation_record(), usage_record()):
            desk.store(record)
            await turns()
        assert (desk.bus.num_queued, desk.commits, len(desk.bus.pulls)) == (2, [], 1)
        desk.asked.set()
        await eventually(lambda: desk.commits == ["commit 2+1+0"])
        assert desk.bus.pulls[1] == {"batch": 9, "no_wait": True, "expires": 0}
        await turns()
        assert desk.events[1:] == ["noted", "1:+ACK", "2:+ACK", "3:+ACK"]


@pytest.mark.usefixtures("long_gathering")
async def test_while_rows_come_none_of_them_wakes_the_loop() -> None:
    desk = Desk()
    async with running(desk):
        desk.store(usage_record())
        desk.asked.set()
        await eventually(lambda: len(desk.commits) == 1)
        for _ in range(2):
            desk.store(usage_record())
            await turns()
        assert (desk.bus.num_queued, len(desk.commits)) == (2, 1)
        desk.asked.set()
        await eventually(lambda: desk.commits[1:] == ["commit 2+0+0"])


async def test_rows_are_written_a_moment_later_though_nobody_asks() -> None:
    desk = Desk()
    async with running(desk):
        for number in range(3):
            desk.store(usage_record())
            await eventually(lambda n=number: sum(map(len, (e.ledger for e in desk.written))) == n + 1)


@pytest.mark.usefixtures("long_gathering")
async def test_a_full_batch_waits_for_nothing() -> None:
    desk = Desk()
    for _ in range(7):
        desk.store(usage_record())
    async with running(desk, batch=3):
        desk.asked.set()
        await eventually(lambda: desk.commits == ["commit 3+0+0", "commit 3+0+0", "commit 1+0+0"])


async def test_the_end_of_the_service_writes_what_is_in_the_queue() -> None:
    desk = Desk()
    async with running(desk) as consumer:
        desk.store(usage_record())
        await turns()
        desk.store(usage_record())
        stopping = asyncio.create_task(consumer.stop())
        await eventually(lambda: desk.commits == ["commit 2+0+0"])
        await stopping


async def test_a_pull_that_the_server_ends_at_once_makes_the_queue_anew() -> None:
    desk = Desk()
    desk.bus.is_missing = True
    async with running(desk):
        await eventually(lambda: "queue made" in desk.events)
        desk.bus.is_missing = False
        await eventually(lambda: len(desk.bus.pulls) == 2)
        desk.store(usage_record())
        await eventually(lambda: desk.commits == ["commit 1+0+0"])


async def test_while_the_bus_is_away_nobody_asks_and_nobody_complains() -> None:
    desk = Desk()
    desk.bus.online = False
    async with running(desk):
        await turns()
        assert (desk.bus.pulls, desk.events) == ([], [])


async def test_what_arrived_but_was_not_started_goes_back_when_the_service_ends() -> None:
    desk = Desk()
    await desk.build()
    await desk.inbox.start()
    desk.store(usage_record())
    assert await desk.inbox.wait()
    await desk.inbox.close()
    await turns()
    assert [event.partition(" ")[0] for event in desk.events] == ["1:-NAK"]


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
