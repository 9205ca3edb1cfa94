"""One batch run against a store that fails at the wrong moments, and an app that counts what it is asked."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from baton_common.errors import RequestFailed
from baton_common.nats_bus import NatsBus
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_edge_api.batches import run as run_module
from baton_edge_api.batches.line_runner import LineRunner
from baton_edge_api.batches.records import BatchRecord, FileRecord, new_batch_id, new_file_id
from baton_edge_api.batches.room import Room
from baton_edge_api.batches.run import BatchRun, RunLimits
from baton_edge_api.batches.store import OfflineStore
from baton_edge_api.exchange import inside_of
from tests.support.batch_files import CHAT, jsonl, line, nats_url
from tests.support.waiting import eventually

__all__ = ["nats_url"]

TENANT = Tenant(tenant_id="acme", key_id="k")
NOW = 1_800_000_000


class CountingApp:
    """Answers each request with its number, or with the errors that it was given first."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.tenants: list[str] = []
        self.request_ids: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = await receive()
        assert message["body"]
        inside = inside_of(scope)
        assert inside
        self.tenants.append(inside.tenant.tenant_id)
        self.request_ids.append(dict(scope["headers"])[b"x-request-id"].decode())
        status = self.errors.pop(0) if self.errors else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"retry-after", b"0")]})
        body = f'{{"number": {len(self.tenants)}}}'.encode()
        await send({"type": "http.response.body", "body": body})


class FlakyStore(OfflineStore):
    """Away for so many tries to store a line."""

    failures = 0

    async def add_line(self, batch_id: str, number: int, result: bytes) -> bool:
        if self.failures:
            self.failures -= 1
            raise RequestFailed(ErrorBody(code="bus_unavailable", message="away"))
        return await super().add_line(batch_id, number, result)


class Bench:
    def __init__(self, bus: NatsBus) -> None:
        self.store = FlakyStore(bus, 1 << 24)
        self.ended: list[str] = []

    async def batch(self, content: bytes) -> BatchRecord:
        file = FileRecord(
            id=new_file_id(),
            tenant_id="acme",
            filename="f",
            purpose="batch",
            num_bytes=len(content),
            created_at=NOW,
        )
        await self.store.add_file(file, io.BytesIO(content))
        record = BatchRecord(
            id=new_batch_id(),
            tenant=TENANT,
            endpoint=CHAT,
            input_file_id=file.id,
            output_seconds=3600,
            created_at=NOW,
            expires_at=NOW + 100,
        )
        await self.store.add_batch(record)
        return record

    def run(
        self,
        app: CountingApp,
        record: BatchRecord,
        *,
        result_bytes: int = 10_000,
        begun: int = 8,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> BatchRun:
        room = Room(list, lambda: 0, lambda name: (name,), lambda: 0.0, 8)
        lines, limits = LineRunner(app, room, pause), RunLimits(100, begun, 10_000, result_bytes)
        return BatchRun(self.store, lines, limits, record, self.ended.append, wall=lambda: NOW + 1.0)

    async def now(self, record: BatchRecord) -> BatchRecord:
        found = await self.store.batch("acme", record.id)
        assert found
        return found


@pytest.fixture
async def bench(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(run_module, "_STORE_AGAIN_SECONDS", 0)
    bus = await NatsBus.connect(nats_url, name="test")
    yield Bench(bus)
    await bus.close()


async def test_an_answer_that_can_not_be_stored_at_once_is_not_asked_for_again(bench: Bench) -> None:
    app, record = CountingApp(), await bench.batch(jsonl(line("a")))
    bench.store.failures = 3
    await bench.run(app, record).run()
    over = await bench.now(record)
    assert (over.status, over.completed, app.tenants) == ("completed", 1, ["acme"])
    assert await bench.store.batches_with_lines() == set()


async def test_a_line_is_asked_again_under_the_same_id_while_there_is_no_room(bench: Bench) -> None:
    app, record = CountingApp(503, 429, 502), await bench.batch(jsonl(line("a")))
    await bench.run(app, record).run()
    assert (await bench.now(record)).completed == 1
    assert len(app.request_ids) == 4
    assert len(set(app.request_ids)) == 1


async def test_an_upstream_that_is_broken_is_asked_three_times(bench: Bench) -> None:
    app, record = CountingApp(*[502] * 9), await bench.batch(jsonl(line("a")))
    await bench.run(app, record).run()
    over = await bench.now(record)
    assert (over.completed, over.failed, len(app.request_ids)) == (0, 1, 3)


async def test_what_another_process_has_finished_is_not_run_again(bench: Bench) -> None:
    app, record = CountingApp(), await bench.batch(jsonl(line("a"), line("b"), line("c")))
    good = b'{"custom_id": "b", "response": {"status_code": 200}}'
    await bench.store.add_line(record.id, 2, good)
    await bench.run(app, record).run()
    over = await bench.now(record)
    assert (over.completed, len(app.tenants), bench.ended) == (3, 2, ["completed", "completed"])


async def test_two_that_run_it_at_once_leave_one_result_a_line(bench: Bench) -> None:
    app, record = CountingApp(), await bench.batch(jsonl(*(line(str(number)) for number in range(12))))
    await asyncio.gather(bench.run(app, record).run(), bench.run(app, record).run())
    over = await bench.now(record)
    assert (over.status, over.total, over.completed, over.failed) == ("completed", 12, 12, 0)
    assert over.output_file_id
    with await bench.store.open_file(over.output_file_id) as content:
        assert len(content.readlines()) == 12


async def test_one_that_takes_over_at_the_end_writes_the_same_files(bench: Bench) -> None:
    app, record = CountingApp(), await bench.batch(jsonl(line("a")))
    await bench.store.add_line(record.id, 1, b'{"custom_id": "a", "response": {"status_code": 200}}')
    named = {"output_file_id": new_file_id(), "error_file_id": new_file_id(), "total": 1}
    await bench.store.change_batch(record, lambda present: present.now("finalizing", NOW, **named))
    await bench.run(app, record).run()
    over = await bench.now(record)
    assert (over.status, over.output_file_id, over.error_file_id) == (
        "completed",
        named["output_file_id"],
        None,
    )
    assert app.tenants == []


async def test_an_answer_too_large_to_keep_is_an_error_that_says_so(bench: Bench) -> None:
    app, record = CountingApp(), await bench.batch(jsonl(line("a")))
    await bench.run(app, record, result_bytes=10).run()
    over = await bench.now(record)
    assert over.error_file_id
    with await bench.store.open_file(over.error_file_id) as content:
        assert b'"code":"answer_too_large"' in content.read()


async def test_an_input_file_that_is_gone_fails_the_batch(bench: Bench) -> None:
    app, record = CountingApp(), await bench.batch(jsonl(line("a")))
    await bench.store.remove_file("acme", record.input_file_id)
    await bench.run(app, record).run()
    over = await bench.now(record)
    assert (over.status, [problem.code for problem in over.problems]) == ("failed", ["input_file_gone"])
    assert app.tenants == []


async def test_one_that_is_stopped_leaves_the_batch_to_others(bench: Bench) -> None:
    app, record = CountingApp(), await bench.batch(jsonl(line("a")))
    run = bench.run(app, record)
    run.stop()
    await run.run()
    over = await bench.now(record)
    assert (over.status, over.completed, app.tenants) == ("in_progress", 0, [])


async def test_lines_that_wait_to_be_asked_again_are_not_more_than_may_be_begun(bench: Bench) -> None:
    app = CountingApp(*[429] * 12)
    record = await bench.batch(jsonl(*(line(str(number)) for number in range(9))))
    pausing: list[int] = [0]

    async def pause(_: float) -> None:
        """The first one waits for a second; both give a third its time."""
        pausing.append(pausing[-1] + 1)
        await eventually(lambda: max(pausing) >= 2)
        for _ in range(50):
            await asyncio.sleep(0)
        pausing.append(pausing[-1] - 1)

    await bench.run(app, record, pause=pause, begun=2).run()
    assert (await bench.now(record)).completed == 9
    assert max(pausing) == 2
