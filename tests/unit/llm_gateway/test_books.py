from __future__ import annotations

import asyncio
import logging

import pytest

from baton_common.errors import BusTimeout
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.records import UsageRecord
from baton_llm_gateway import books as books_module
from baton_llm_gateway.books import Books
from tests.support.waiting import eventually

RID = "0123456789abcdef0123456789abcdef"
RECORD = UsageRecord(
    request_id=RID,
    run_id="deadbeef",
    attempt=3,
    tenant=Tenant(tenant_id="acme", key_id="dev"),
    model="m",
    replica="r",
    usage=Usage(prompt_tokens=7, completion_tokens=2),
    outcome="finished",
    started_at=1.0,
    ended_at=2.0,
)


class Store(MemoryBus):
    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.failures = failures
        self.tries: list[str] = []

    async def publish_durable(
        self, subject: str, payload: bytes, *, message_id: str, timeout: float = 5
    ) -> None:
        self.tries.append(message_id)
        if len(self.tries) <= self.failures:
            raise BusTimeout(subject, timeout)
        await super().publish_durable(subject, payload, message_id=message_id, timeout=timeout)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books_module, "FIRST_PAUSE_SECONDS", 0.0)


async def test_a_record_is_stored_under_its_request_run_and_attempt() -> None:
    bus = Store()
    books = Books(bus)
    await books.write(RECORD)
    await books.write(RECORD)
    stored = bus.stored[subjects.after("usage", RID)]
    assert list(stored) == [f"{RID}-deadbeef-3"]
    assert UsageRecord.decode(stored[f"{RID}-deadbeef-3"]) == RECORD
    assert books.num_pending == 0


async def test_a_store_that_is_away_is_tried_again_with_the_same_id() -> None:
    bus = Store(failures=3)
    books = Books(bus)
    books.write(RECORD)
    await books.flush(5)
    assert bus.tries == [f"{RID}-deadbeef-3"] * 4
    assert len(bus.stored[subjects.after("usage", RID)]) == 1


async def test_one_that_is_given_while_the_others_are_waited_for_is_stored_too() -> None:
    bus, turns = Store(), asyncio.Semaphore(0)
    store = bus.publish_durable

    async def slow(subject: str, payload: bytes, *, message_id: str, timeout: float = 5) -> None:
        await turns.acquire()
        await store(subject, payload, message_id=message_id, timeout=timeout)

    bus.publish_durable = slow  # type: ignore[method-assign]
    books = Books(bus)
    books.write(RECORD)
    flushing = asyncio.create_task(books.flush(20))
    await asyncio.sleep(0)
    later = books.write(RECORD.model_copy(update={"attempt": 4}))
    turns.release()
    await eventually(lambda: len(bus.tries) == 1)
    turns.release()
    assert await flushing
    assert later.done()
    assert bus.tries == [f"{RID}-deadbeef-3", f"{RID}-deadbeef-4"]


async def test_when_its_time_is_over_it_says_that_not_all_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    bus = Store()
    never = asyncio.Event()

    async def silent(subject: str, payload: bytes, *, message_id: str, timeout: float = 5) -> None:
        await never.wait()

    bus.publish_durable = silent  # type: ignore[method-assign]
    books = Books(bus)
    books.write(RECORD)
    assert not await books.flush(0.01)
    assert "1 usage records were not stored" in caplog.text
    await eventually(lambda: books.num_pending == 0)


async def test_one_that_stays_away_ends_in_a_log_line_with_all_that_would_have_been_billed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = Store(failures=1000)
    books = Books(bus)
    with caplog.at_level(logging.ERROR):
        await books.write(RECORD)
    assert len(bus.tries) == books_module.MAX_TRIES
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{RID}-deadbeef-3 LOST: tenant acme, model m, 7 tokens in, 2 out, finished" in line


async def test_it_is_given_up_with_the_last_try_and_not_a_pause_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(books_module, "FIRST_PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(books_module.asyncio, "sleep", pause)
    await Books(Store(failures=1000)).write(RECORD)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 64]
