"""A gateway that dies with rows not stored: the engine worker stores them, and only then."""

from __future__ import annotations

from collections import Counter

import pytest

from baton_common import recent_ends
from baton_common.errors import BusError, BusUnavailable
from baton_common.leases import LeaseBoard
from baton_common.memory_bus import MemoryBus
from baton_common.recent_ends import KEPT_RECORDS, KEPT_SECONDS, MAX_TRIES, RecentEnds
from baton_contracts import subjects
from baton_contracts.heartbeats import Lease
from baton_contracts.records import UsageRecord
from tests.support.after_records import usage_record
from tests.support.relay import HandClock, eventually

GATEWAY = "llm_gateway-1"


class Board:
    def __init__(self) -> None:
        self.bus, self.clock = MemoryBus(), HandClock()
        self.leases = LeaseBoard(self.bus, self.clock.clock)
        self.ends = RecentEnds(self.bus, self.leases, self.clock.clock)

    async def gone(self, record: UsageRecord, gateway: str = GATEWAY) -> None:
        """Until what was to be done for `record` is done."""
        await self.leaves(gateway)
        await eventually(lambda: bool(self.stored(record)))

    async def leaves(self, gateway: str, *, books_closed: bool = False) -> None:
        lease = Lease(service="llm_gateway", instance=gateway, state="gone", books_closed=books_closed)
        await self.bus.publish(subjects.lease(gateway), lease.encode())

    def stored(self, record: UsageRecord) -> list[UsageRecord]:
        found = self.bus.stored.get(subjects.after("usage", record.request_id), {})
        return [UsageRecord.decode(payload) for payload in found.values()]


async def test_a_lost_gateways_rows_are_stored_in_its_place() -> None:
    board, mine, others = Board(), usage_record(), usage_record()
    await board.leases.start()
    board.ends.note(GATEWAY, mine)
    board.ends.note("llm_gateway-2", others)
    assert board.stored(mine) == []
    await board.gone(mine)
    assert board.stored(mine) == [mine.model_copy(update={"stand_in": True})]
    assert board.stored(others) == []
    assert board.ends.num_kept == 1


async def test_for_one_that_left_with_its_books_closed_nothing_is_stored() -> None:
    board, mine, others = Board(), usage_record(), usage_record()
    await board.leases.start()
    board.ends.note(GATEWAY, mine)
    board.ends.note("llm_gateway-2", others)
    await board.leaves(GATEWAY, books_closed=True)
    await board.gone(others, "llm_gateway-2")
    assert board.stored(mine) == []
    assert board.ends.num_kept == 0


async def test_silence_is_death_too_and_what_ends_after_it_is_stored_as_well() -> None:
    board, before, after = Board(), usage_record(), usage_record()
    board.ends.note(GATEWAY, before)
    board.clock.move(3.5)
    board.leases.check()
    await eventually(lambda: len(board.stored(before)) == 1)
    board.ends.note(GATEWAY, after)
    board.clock.move(3.5)
    board.leases.check()
    await eventually(lambda: len(board.stored(after)) == 1)
    assert board.ends.num_kept == 0


async def test_what_outlived_its_gateway_is_stored_at_once() -> None:
    board, record = Board(), usage_record()
    board.ends.store_now(record)
    await eventually(lambda: board.stored(record) == [record.model_copy(update={"stand_in": True})])
    assert board.ends.num_kept == 0


async def test_old_ends_are_forgotten() -> None:
    board, old, new = Board(), usage_record(), usage_record()
    await board.leases.start()
    board.ends.note(GATEWAY, old)
    board.clock.move(KEPT_SECONDS + 1)
    board.ends.note(GATEWAY, new)
    assert board.ends.num_kept == 1
    await board.gone(new)
    assert board.stored(old) == []
    assert len(board.stored(new)) == 1


async def test_so_many_are_kept_and_no_more() -> None:
    board, record = Board(), usage_record()
    for _ in range(KEPT_RECORDS + 5):
        board.ends.note(GATEWAY, record)
    assert board.ends.num_kept == KEPT_RECORDS


async def test_a_store_that_is_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_ends, "FIRST_PAUSE_SECONDS", 0.001)
    board, record = Board(), usage_record()
    await board.leases.start()
    publish, failures = board.bus.publish_durable, [BusUnavailable("away"), BusUnavailable("away")]

    async def stumbling(*args: object, **named: object) -> None:
        if failures:
            raise failures.pop()
        await publish(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(board.bus, "publish_durable", stumbling)
    board.ends.note(GATEWAY, record)
    await board.gone(record)
    assert failures == []


async def test_a_store_that_is_away_is_waited_for_once_and_not_for_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_ends, "FIRST_PAUSE_SECONDS", 0.0)
    board, records = Board(), [usage_record() for _ in range(20)]
    publish, asked = board.bus.publish_durable, list[str]()

    async def away_at_first(subject: str, *args: object, **named: object) -> None:
        asked.append(subject)
        if len(asked) < recent_ends.MAX_TRIES:
            raise BusUnavailable("away")
        await publish(subject, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(board.bus, "publish_durable", away_at_first)
    await board.leases.start()
    for record in records:
        board.ends.note(GATEWAY, record)
    await board.gone(records[-1])
    await eventually(lambda: all(board.stored(record) for record in records))
    assert len(asked) == recent_ends.MAX_TRIES - 1 + len(records)


async def test_a_row_that_the_store_refuses_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recent_ends, "FIRST_PAUSE_SECONDS", 0.0)
    board, bad, good = Board(), usage_record(), usage_record()
    publish = board.bus.publish_durable

    async def refuses_one(subject: str, *args: object, **named: object) -> None:
        if bad.request_id in subject:
            raise BusError(subject, "maximum payload exceeded")
        await publish(subject, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(board.bus, "publish_durable", refuses_one)
    await board.leases.start()
    for record in (bad, good):
        board.ends.note(GATEWAY, record)
    await board.gone(good)
    await eventually(lambda: "LOST" in caplog.text)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        f"usage record {bad.request_id}-{bad.run_id}-{bad.attempt}-stand-in LOST"
    ]


async def test_rows_that_the_store_refuses_take_no_others_with_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """More of them, one behind the other, than one row has tries; and those that it took only later."""
    monkeypatch.setattr(recent_ends, "FIRST_PAUSE_SECONDS", 0.0)
    board, rows = Board(), [usage_record() for _ in range(2 * MAX_TRIES)]
    publish, tries = board.bus.publish_durable, Counter[str]()

    async def refuses_early(subject: str, *args: object, **named: object) -> None:
        tries[subject] += 1
        if len(tries) <= MAX_TRIES + 1 and tries[subject] < 3:
            raise BusError(subject, "insufficient resources")
        await publish(subject, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(board.bus, "publish_durable", refuses_early)
    await board.ends._store(rows)
    assert all(board.stored(row) for row in rows)
    assert "LOST" not in caplog.text


async def test_it_is_given_up_with_the_last_try_and_not_a_pause_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def away(subject: str, *_: object, **__: object) -> None:
        raise BusUnavailable(subject)

    board = Board()
    monkeypatch.setattr(board.bus, "publish_durable", away)
    monkeypatch.setattr(recent_ends.asyncio, "sleep", pause)
    await board.ends._store([usage_record()])
    assert "LOST" in caplog.text
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 64]
