"""The loop of stop 10: gather → take what is there → one transaction → acknowledge → spans.

Owns the fate of each message: committed and acknowledged, rejected and ended, or given back while the
database is away. Nothing is acknowledged before its commit; nothing is counted twice after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from baton_after_answer.books import BooksAway, Entry, RowRefused
from baton_after_answer.courtesy import Courtesy
from baton_after_answer.pricing import PriceOf, priced
from baton_after_answer.pull import Delivery, PullInbox
from baton_after_answer.receipts import span_batches
from baton_after_answer.records import Record, ledger_row, parse_record, rejected_row, response_row, turn_row
from baton_common.clock import Clock
from baton_common.errors import BusError
from baton_contracts.base import MalformedMessage
from baton_contracts.records import ResponseRecord, UsageRecord
from baton_contracts.spans import SpanBatch

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.1
"""Records wait so long in the queue for the next ones, to share a commit, unless somebody asks the books.
None of them wakes this process meanwhile: it would take a core from the questions that follow."""

Write = Callable[[Entry], Awaitable[None]]
PublishSpans = Callable[[SpanBatch], Awaitable[None]]


@dataclass
class Counts:
    """Since the start of this process."""

    committed: int = 0
    rejected: int = 0
    given_back: int = 0


@dataclass(frozen=True)
class Item:
    """A message in hand: the record in it, or why there is none."""

    delivery: Delivery
    record: Record | None
    problem: str = ""


class Consumer:
    def __init__(
        self,
        inbox: PullInbox,
        *,
        instance: str,
        clock: Clock,
        write: Write,
        publish_spans: PublishSpans,
        asked: Callable[[], Awaitable[None]],
        on_commit: Callable[[], None],
        courtesy: Courtesy,
        ensure_queue: Callable[[], Awaitable[None]],
        retry_seconds: float,
        price_of: PriceOf,
    ) -> None:
        """`asked` returns when somebody waits for what is in the queue. `publish_spans` raises nothing."""
        self._inbox = inbox
        self._instance = instance
        self._clock = clock
        self._write = write
        self._publish_spans = publish_spans
        self._asked = asked
        self._on_commit = on_commit
        self._in_parts = courtesy.few_at_a_time
        self._ensure_queue = ensure_queue
        self._retry_seconds = retry_seconds
        self._price_of = price_of
        self._is_stopping = False
        self._idle = asyncio.Event()
        self.counts = Counts()

    async def run(self) -> None:
        """Until `stop`."""
        self._idle.clear()
        try:
            while not self._is_stopping:
                if not await self._inbox.wait():
                    await self._look_after_queue()
                    continue
                await self._gather()
                await self._settle_while_they_come()
        finally:
            self._idle.set()

    async def stop(self) -> None:
        """What is in the queue by now is written, up to a batch; the rest stays there."""
        self._is_stopping = True
        self._inbox.wake()
        await self._idle.wait()
        await self._inbox.close()

    async def _settle_while_they_come(self) -> None:
        while batch := await self._inbox.fetch():
            await self.settle(batch)
            if self._is_stopping:
                return
            if len(batch) < self._inbox.batch:
                await self._gather()

    async def _gather(self) -> None:
        if self._is_stopping:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER_SECONDS):
                await self._asked()

    async def settle(self, batch: Sequence[Delivery]) -> None:
        """Decides the fate of each message of `batch`."""
        taken_at = self._clock.wall()
        items = [self._open(delivery) for part in self._in_parts(batch) for delivery in part]
        try:
            await self._write(self._entry(items))
        except BooksAway as error:
            await self._give_back(items, str(error))
        except RowRefused as error:
            await self._refused(items, str(error))
        else:
            await self._committed(items, taken_at)

    def _open(self, delivery: Delivery) -> Item:
        try:
            record = parse_record(delivery.subject, delivery.payload)
        except MalformedMessage as error:
            return Item(delivery, None, str(error))
        return Item(delivery, priced(record, self._price_of))

    def _entry(self, items: Sequence[Item]) -> Entry:
        now = self._clock.wall()
        entry = Entry()
        for item in items:
            if item.record is None:
                delivery = item.delivery
                entry.rejected.append(rejected_row(delivery.subject, delivery.payload, item.problem, now))
            elif isinstance(item.record, UsageRecord):
                entry.ledger.append(ledger_row(item.record, now))
            elif isinstance(item.record, ResponseRecord):
                entry.responses.append(response_row(item.record, now))
            else:
                entry.turns.append(turn_row(item.record, now))
        return entry

    async def _committed(self, items: Sequence[Item], taken_at: float) -> None:
        committed_at = self._clock.wall()
        for part in self._in_parts(items):
            for item in part:
                await self._answer(item)
        self._on_commit()
        records = [(item.record, item.delivery.stored_at) for item in items if item.record]
        for part in self._in_parts(records):
            for spans in span_batches(
                part, instance=self._instance, taken_at=taken_at, committed_at=committed_at
            ):
                await self._publish_spans(spans)

    async def _answer(self, item: Item) -> None:
        if item.record is None:
            self.counts.rejected += 1
            log.error("%s is no record, set aside: %s", item.delivery.subject, item.problem)
            await item.delivery.term()
        else:
            self.counts.committed += 1
            await item.delivery.ack()

    async def _give_back(self, items: Sequence[Item], why: str) -> None:
        self.counts.given_back += len(items)
        log.warning(
            "books away, %d records wait %.1f s for another try: %s", len(items), self._retry_seconds, why
        )
        for item in items:
            await item.delivery.nak(self._retry_seconds)

    async def _refused(self, items: Sequence[Item], why: str) -> None:
        """One bad row must not keep the others out: each is tried alone, and the bad one is set aside."""
        if len(items) > 1:
            for item in items:
                await self.settle([item.delivery])
            return
        item = items[0]
        log.error("%s is not accepted by the database: %s", item.delivery.subject, why)
        set_aside = Item(item.delivery, None, why)
        try:
            await self._write(self._entry([set_aside]))
        except (BooksAway, RowRefused) as error:
            await self._give_back(items, str(error))
        else:
            await self._committed([set_aside], self._clock.wall())

    async def _look_after_queue(self) -> None:
        """The server ended a pull at once: after a wiped store the queue has to be made again."""
        try:
            await self._ensure_queue()
        except BusError as error:
            log.warning("queue AFTER is away: %s", error)
