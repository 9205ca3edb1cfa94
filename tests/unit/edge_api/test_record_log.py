from __future__ import annotations

import asyncio
from typing import Any

import pytest

from baton_common.memory_bus import MemoryBus
from baton_contracts.envelope import Tenant
from baton_contracts.records import ConversationRecord, ResponseRecord, StoredMessage
from baton_edge_api import record_log
from baton_edge_api.record_log import RecordLog
from tests.support.after_records import response_record

RID = "0af7651916cd43dd8448eb211c80319c"
SUBJECT = f"baton.v1.after.conversation.{RID}"


def record(answer: str = "Hi") -> ConversationRecord:
    return ConversationRecord(
        request_id=RID,
        run_id="00000001",
        conversation_id="c",
        tenant=Tenant(tenant_id="t", key_id="k"),
        model="m",
        asked=(StoredMessage(role="user", content="Hello?"),),
        answer=answer,
        cut_short=False,
        created_at=1.0,
    )


async def test_a_record_is_stored_under_its_run() -> None:
    bus = MemoryBus()
    assert await RecordLog(bus, 10_000).keep([record()], 1) is True
    assert bus.stored[SUBJECT] == {f"{RID}-00000001-conversation": record().encode()}


async def test_the_same_record_twice_is_stored_once() -> None:
    bus = MemoryBus()
    log = RecordLog(bus, 10_000)
    await log.keep([record()], 1)
    await log.keep([record()], 1)
    assert len(bus.stored[SUBJECT]) == 1


async def test_while_the_bus_is_away_it_waits_behind_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "RETRY_SECONDS", 0)
    bus = MemoryBus(online=False)
    log = RecordLog(bus, 10_000)
    assert await log.keep([record()], 0.001) is False
    assert log.num_waiting == 1
    bus.online = True
    await log.flush(5)
    assert log.num_waiting == 0
    assert len(bus.stored[SUBJECT]) == 1


async def test_what_can_not_be_stored_does_not_hold_up_the_end() -> None:
    log = RecordLog(MemoryBus(online=False), 10_000)
    assert await log.keep([record()], 0.001) is False
    await log.flush(0.001)
    await asyncio.sleep(0)
    assert log.num_waiting == 0


async def test_memory_for_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "MAX_WAITING", 1)
    log = RecordLog(MemoryBus(online=False), 10_000)
    results: list[Any] = [await log.keep([record()], 0.001) for _ in range(2)]
    assert results == [False, False]
    assert log.num_waiting == 1
    await log.flush(0.001)


async def test_an_answer_too_large_for_the_bus_is_cut_and_marked() -> None:
    bus = MemoryBus()
    await RecordLog(bus, 1000).keep([record("x" * 5000)], 1)
    stored = ConversationRecord.decode(next(iter(bus.stored[SUBJECT].values())))
    assert stored.cut_short is True
    assert stored.answer == "x" * 625


@pytest.mark.parametrize(
    ("status", "kept"), [("completed", "incomplete"), ("failed", "failed"), ("cancelled", "cancelled")]
)
async def test_a_response_too_large_for_the_bus_loses_its_output(status: str, kept: str) -> None:
    bus = MemoryBus()
    await RecordLog(bus, 1000).keep([response_record(output="x" * 5000, status=status)], 1)
    (stored,) = next(iter(bus.stored.values())).values()
    assert (ResponseRecord.decode(stored).status, ResponseRecord.decode(stored).output) == (kept, "[]")
