"""Stop 10 on a real NATS server, as a real process with its own user's permissions (cases R17, R18)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, select

from baton_after_answer.schema import ledger, turns
from baton_common.bus import BusMessage
from baton_common.jetstream import call, stream_state
from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.frames import Usage
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import BooksQuery, BooksReply
from baton_contracts.records import ConversationRecord, UsageRecord
from baton_contracts.spans import SpanBatch
from tests.support.after_records import (
    RIVAL,
    conversation_record,
    message_id_of,
    subject_of,
    usage_record,
)
from tests.support.conformance_run import run_conformance
from tests.support.postgres_server import postgres_folder, running_postgres
from tests.support.relay import eventually
from tests.support.restricted_nats import RestrictedNats, restricted_nats
from tests.support.service_process import ServiceProcess, running_service


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[RestrictedNats]:
    with restricted_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def operator(nats: RestrictedNats) -> AsyncIterator[NatsBus]:
    bus = await nats.connect()
    yield bus
    await bus.close()


@asynccontextmanager
async def after_answer(nats: RestrictedNats, home: Path, **extra: str) -> AsyncIterator[ServiceProcess]:
    patient = {"BATON_HOME": str(home), "BATON_BOOKS_BARRIER_SECONDS": "10"}
    environment = nats.environment("after_answer") | patient | extra
    async with running_service("after_answer", environment) as service:
        yield service


async def store(bus: NatsBus, record: UsageRecord | ConversationRecord, message_id: str = "") -> None:
    await bus.publish_durable(
        subject_of(record), record.encode(), message_id=message_id or message_id_of(record)
    )


async def ask(bus: NatsBus, **query: str | None) -> BooksReply:
    question = BooksQuery.model_validate({"kind": "usage", "tenant_id": "acme", **query})
    payload = await bus.request(subjects.books(new_request_id()), question.encode(), timeout=20)
    return BooksReply.decode(payload)


def rows(home: Path, statement: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(home / "books.sqlite") as connection:
        found = connection.execute(statement).fetchall()
    connection.close()
    return found


async def test_a_hundred_records_delivered_twice_are_a_hundred_rows(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    async with after_answer(nats, tmp_path):
        records = [usage_record(request_id=f"{number:032x}") for number in range(1, 101)]
        for copy in ("first", "again"):  # other message ids: the stream itself must not be what saves us
            await asyncio.gather(
                *(store(operator, record, f"{copy}-{record.request_id}") for record in records)
            )
        assert (await ask(operator, request_id=records[-1].request_id)).usage == (records[-1],)
        found = rows(tmp_path, "SELECT count(*), sum(prompt_tokens), sum(completion_tokens) FROM ledger")
        assert found == [(100, 4200, 700)]
        assert (await stream_state(operator, subjects.STREAM_AFTER)).messages == 0


async def test_the_books_show_what_was_stored_just_before_the_question(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    """The barrier: each answer is looked up as soon as it is stored, and it is always there."""
    async with after_answer(nats, tmp_path):
        for number in range(50):
            record = conversation_record(created_at=float(number), answer=f"answer {number}")
            await store(operator, record)
            reply = await ask(operator, kind="conversation", conversation_id="conv_1")
            assert [turn.answer for turn in reply.turns][-1] == f"answer {number}"
        assert len(reply.turns) == 50


async def test_a_question_waits_for_a_record_that_is_to_be_tried_again(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    retry = {"BATON_AFTER_RETRY_SECONDS": "0.7"}
    async with after_answer(nats, tmp_path, **retry) as service:
        lock = sqlite3.connect(tmp_path / "books.sqlite", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        record = usage_record()
        await store(operator, record)
        await service.logged("books away")
        lock.execute("ROLLBACK")
        lock.close()
        assert (await ask(operator, request_id=record.request_id)).usage == (record,)


async def test_what_another_tenant_said_is_not_shown(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    async with after_answer(nats, tmp_path):
        theirs = conversation_record(tenant=RIVAL, answer="secret")
        await store(operator, theirs)
        assert (await ask(operator, kind="conversation", conversation_id="conv_1")).turns == ()
        reply = await ask(operator, kind="conversation", conversation_id="conv_1", tenant_id="rival")
        assert [turn.answer for turn in reply.turns] == ["secret"]


async def test_a_poison_message_is_set_aside_and_blocks_nobody(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    async with after_answer(nats, tmp_path) as service:
        good = usage_record()
        poison = subjects.after("usage", "0" * 31 + "1")
        await operator.publish_durable(poison, b"\x00\xffnot json", message_id="poison")
        await operator.publish_durable("baton.v1.after.refund.x", b"{}", message_id="other kind")
        await store(operator, good)
        assert (await ask(operator, request_id=good.request_id)).usage == (good,)
        assert "set aside" in await service.logged(poison)
        assert (await stream_state(operator, subjects.STREAM_AFTER)).messages == 0
        found = rows(tmp_path, "SELECT subject, payload FROM rejected ORDER BY subject")
        assert found == [("baton.v1.after.refund.x", b"{}"), (poison, b"\x00\xffnot json")]


async def test_cut_short_cancelled_and_zero_usage_are_booked_as_they_were(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    """R17, R18: cancelled is billed for what was emitted; the part of an answer is kept once, marked."""
    async with after_answer(nats, tmp_path):
        rid = new_request_id()
        attempts = [
            usage_record(
                request_id=rid, attempt=1, outcome="error", finish_reason=None, error_code="stop_lost",
                usage=Usage(),
            ),
            usage_record(
                request_id=rid, attempt=2, outcome="cancelled", finish_reason="cancelled",
                usage=Usage(prompt_tokens=42, completion_tokens=3),
            ),
        ]  # fmt: skip
        part = conversation_record(
            request_id=rid, cut_short=True, answer="The KV ca", finish_reason="cancelled"
        )
        for record in (*attempts, part, *attempts, part):
            await store(operator, record, new_request_id())
        assert (await ask(operator, request_id=rid)).usage == tuple(attempts)
        reply = await ask(operator, kind="conversation", conversation_id="conv_1")
        assert [(turn.answer, turn.cut_short) for turn in reply.turns] == [("The KV ca", True)]


async def test_stop_10_is_in_the_trace(nats: RestrictedNats, operator: NatsBus, tmp_path: Path) -> None:
    record = usage_record()
    seen: asyncio.Queue[BusMessage] = asyncio.Queue()
    await operator.subscribe(subjects.trace(record.request_id), seen.put_nowait)
    async with after_answer(nats, tmp_path):
        await store(operator, record)
        async with asyncio.timeout(20):
            batch = SpanBatch.decode((await seen.get()).payload)
    assert batch.tenant_id == "acme"
    assert [(span.stop, span.name, span.service) for span in batch.spans] == [
        (10, "queue", "after_answer"),
        (10, "ledger", "after_answer"),
    ]


async def taken(operator: NatsBus) -> int:
    """Records that the service has in hand: delivered, not acknowledged."""
    return (
        await operator.jetstream.consumer_info(subjects.STREAM_AFTER, "after_answer")
    ).num_ack_pending or 0


async def test_killed_with_records_in_hand_it_loses_none_and_writes_none_twice(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    """kill -9 with a batch that is taken and can't be committed yet; the successor writes it and the rest."""
    quick = {"BATON_AFTER_ACK_WAIT_SECONDS": "0.5", "BATON_AFTER_BATCH": "20"}
    records = [usage_record(request_id=f"{number:032x}") for number in range(1, 1001)]
    async with after_answer(nats, tmp_path, **quick) as service:
        await asyncio.gather(*(store(operator, record) for record in records[:40]))
        await ask(operator)
        lock = sqlite3.connect(tmp_path / "books.sqlite", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        await asyncio.gather(*(store(operator, record) for record in records[40:]))
        async with asyncio.timeout(10):
            while not await taken(operator):
                await asyncio.sleep(0)
        await service.kill()
        lock.close()
    assert rows(tmp_path, "SELECT count(*) FROM ledger") == [(40,)]
    assert (await stream_state(operator, subjects.STREAM_AFTER)).messages == 960
    async with after_answer(nats, tmp_path, **quick):
        await ask(operator)
        assert rows(tmp_path, "SELECT count(*), count(DISTINCT request_id) FROM ledger") == [(1000, 1000)]
        assert (await stream_state(operator, subjects.STREAM_AFTER)).messages == 0


async def test_committed_but_not_acknowledged_is_delivered_again_and_stays_one_row(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    """The kill that falls between commit and acknowledgement: the row is there, the message too."""
    record = usage_record()
    async with after_answer(nats, tmp_path) as service:
        await store(operator, record)
        await ask(operator)
        await service.kill()
    await store(operator, record, "as if the acknowledgement had been lost")
    async with after_answer(nats, tmp_path):
        assert (await ask(operator, request_id=record.request_id)).usage == (record,)
        assert rows(tmp_path, "SELECT count(*) FROM ledger") == [(1,)]


async def test_with_the_database_locked_nothing_is_lost_and_questions_are_told(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    slow = {"BATON_AFTER_RETRY_SECONDS": "0.2", "BATON_BOOKS_BARRIER_SECONDS": "0.2"}
    async with after_answer(nats, tmp_path, **slow) as service:
        lock = sqlite3.connect(tmp_path / "books.sqlite", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        record = usage_record()
        await store(operator, record)
        reply = await ask(operator)
        assert reply.error is not None
        assert (reply.error.code, reply.error.stop) == ("stop_unresponsive", "after_answer")
        await service.logged("books away")
        lock.execute("ROLLBACK")
        lock.close()
        await until_rows(tmp_path, lambda count: count == 1)


async def test_sigterm_ends_it_cleanly_with_everything_written_or_in_the_queue(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    async with after_answer(nats, tmp_path, BATON_AFTER_BATCH="10") as service:
        records = [usage_record(request_id=f"{number:032x}") for number in range(1, 301)]
        flood = asyncio.gather(*(store(operator, record) for record in records))
        await until_rows(tmp_path, lambda count: count >= 10)
        assert await service.terminate() == 0
        await flood
    written = rows(tmp_path, "SELECT count(*) FROM ledger")[0][0]
    left = (await stream_state(operator, subjects.STREAM_AFTER)).messages
    assert written + left == 300  # type: ignore[operator]


@pytest.mark.skipif(postgres_folder() is None, reason="no PostgreSQL on this machine")
async def test_postgresql_keeps_the_same_books(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    with running_postgres() as url:
        async with after_answer(nats, tmp_path, BATON_DATABASE_URL=url):
            usage, said = usage_record(), conversation_record(answer="with a \0 in it")
            for copy in ("first", "again"):
                await store(operator, usage, f"{copy}-usage")
                await store(operator, said, f"{copy}-said")
            assert (await ask(operator, request_id=usage.request_id)).usage == (usage,)
            reply = await ask(operator, kind="conversation", conversation_id="conv_1")
            assert [turn.answer for turn in reply.turns] == ["with a � in it"]
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as connection:
            counts = [
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (ledger, turns)
            ]
        engine.dispose()
    assert counts == [1, 1]
    assert not (tmp_path / "books.sqlite").exists()


async def test_a_bus_that_restarts_delays_the_books_and_loses_nothing(tmp_path: Path) -> None:
    with ExitStack() as first_life:
        first = first_life.enter_context(restricted_nats(tmp_path / "nats"))
        async with after_answer(first, tmp_path) as service:
            operator = await first.connect()
            await store(operator, usage_record())
            await ask(operator)
            await operator.close()
            first_life.close()
            await service.logged("disconnected")
            port = int(first.url.rsplit(":", 1)[1])
            with restricted_nats(tmp_path / "nats", port=port) as second:
                await service.logged("connected again")
                operator = await second.connect()
                later = usage_record()
                await store(operator, later)
                assert (await ask(operator, request_id=later.request_id)).usage == (later,)
                await operator.close()
    assert rows(tmp_path, "SELECT count(*) FROM ledger") == [(2,)]


async def test_a_queue_that_was_deleted_is_made_again(
    nats: RestrictedNats, operator: NatsBus, tmp_path: Path
) -> None:
    async with after_answer(nats, tmp_path):
        await call(operator, f"STREAM.DELETE.{subjects.STREAM_AFTER}")
        record = usage_record()
        await store(operator, record)  # tries until the stream is there
        assert (await ask(operator, request_id=record.request_id)).usage == (record,)


async def test_it_fits_its_contract(nats: RestrictedNats, tmp_path: Path) -> None:
    async with after_answer(nats, tmp_path):
        status, printed = await run_conformance("after_answer", nats)
    assert status == 0, printed
    assert "fits    does its work" in printed


async def until_rows(home: Path, enough: Callable[[int], bool]) -> None:
    await eventually(
        lambda: enough(rows(home, "SELECT count(*) FROM ledger")[0][0]),  # type: ignore[arg-type]
        seconds=20,
    )
