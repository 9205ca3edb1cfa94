"""R17: one ledger row for each (request, run, attempt), whatever happens to the answer or to the store."""

from __future__ import annotations

import asyncio
from statistics import median

import pytest

from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.records import UsageRecord
from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Stage
from tests.support.scripted_answer import WORDS, Script
from tests.support.waiting import eventually


async def test_a_retried_answer_has_a_row_for_each_attempt_under_its_own_id(memory_stage: Stage) -> None:
    stage = memory_stage
    engines = [FakeEngine(Script(error_after=0), autoplay=False) for _ in range(2)]
    await stage.whole(*engines)
    bus = stage.edge.bus
    assert isinstance(bus, MemoryBus)

    request_id = await stage.send(stage.handoff())
    await eventually(lambda: any(engine.waiting for engine in engines))
    first = next(engine for engine in engines if engine.waiting)
    second = next(engine for engine in engines if engine is not first)
    second.script = Script()
    first.step()
    first.step()
    await eventually(lambda: bool(second.waiting))
    for _ in WORDS:
        second.step()
    await stage.listen(request_id)

    subject = subjects.after("usage", request_id)
    await eventually(lambda: len(bus.stored.get(subject, {})) == 2)
    assert list(bus.stored[subject]) == [f"{request_id}-0a1b2c3d-1", f"{request_id}-0a1b2c3d-2"]
    rows = [UsageRecord.decode(payload) for payload in bus.stored[subject].values()]
    assert [(row.outcome, row.usage.completion_tokens) for row in rows] == [("error", 0), ("finished", 5)]
    # Delivered twice, it is stored once.
    for message_id, payload in list(bus.stored[subject].items()):
        await bus.publish_durable(subject, payload, message_id=message_id)
    assert len(bus.stored[subject]) == 2


async def test_a_store_that_is_away_does_not_hold_up_the_answer(stage: Stage) -> None:
    await stage.whole(FakeEngine())
    await stage.lose_store()

    answers = [await stage.ask() for _ in range(5)]

    assert [heard.text for heard in answers] == ["".join(WORDS)] * 5
    assert median(heard.seconds for heard in answers) < 0.5
    stage.records.clear()
    await stage.find_store()
    stored = {heard.request_id for heard in answers}
    await eventually(lambda: {row.request_id for row in stage.records} >= stored)


async def test_a_gateway_killed_before_its_row_is_stored_has_the_engine_worker_store_it(
    monkeypatch: pytest.MonkeyPatch, stage: Stage
) -> None:
    monkeypatch.setattr("baton_llm_gateway.__main__.FLUSH_SECONDS", 0.0)  # who is killed waits for nothing
    await stage.worker(FakeEngine())
    _, _, gateway = await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    await stage.lose_store()
    heard = await stage.ask()
    await gateway.vanish()
    await stage.find_store()

    await eventually(lambda: any(row.stand_in for row in stage.records))
    row = next(row for row in stage.records if row.stand_in)
    assert (row.request_id, row.run_id, row.attempt) == (heard.request_id, "0a1b2c3d", 1)
    assert (row.outcome, row.finish_reason, row.error_code) == ("finished", "stop", None)
    assert (row.usage.prompt_tokens, row.usage.completion_tokens) == (7, 5)
    assert row.tenant.tenant_id == "acme"


async def test_a_gateway_killed_in_the_middle_has_its_row_when_its_lease_is_over(stage: Stage) -> None:
    """Not a second lease later: the engine worker may be the next to die."""
    engine = FakeEngine(autoplay=False)
    worker = await stage.worker(engine)
    _, _, gateway = await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    request_id = await stage.send(stage.handoff())
    await eventually(lambda: bool(engine.waiting))
    engine.step()
    engine.step()
    await gateway.vanish()
    worker.node.leases._lose(gateway.instance)  # 3 s of silence

    await eventually(lambda: bool(stage.records), seconds=2)
    row = stage.records[0]
    assert (row.request_id, row.stand_in, row.outcome, row.error_code) == (
        request_id,
        True,
        "error",
        "stop_lost",
    )
    assert (row.usage.prompt_tokens, row.usage.completion_tokens) == (7, 2)


async def test_a_deadline_in_the_middle_is_booked_with_the_engines_count(memory_stage: Stage) -> None:
    stage = memory_stage
    engine = FakeEngine(Script(stall_after=3))
    await stage.whole(engine)

    heard = await stage.ask(seconds=0.4)
    await eventually(lambda: len(stage.records) == 1)

    assert heard.error is not None
    assert (heard.error.code, heard.error.status) == ("deadline_exceeded", 504)
    row = stage.records[0]
    assert (row.outcome, row.error_code) == ("error", "deadline_exceeded")
    assert (row.usage.prompt_tokens, row.usage.completion_tokens) == (7, 3)
    await eventually(lambda: not engine.running)
