"""R15: a replica that stalls after its first token is given up by a timer, and what it held is freed."""

from __future__ import annotations

import asyncio

from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Stage
from tests.support.scripted_answer import WORDS, Script
from tests.support.waiting import eventually


async def test_the_stall_timer_ends_it_and_frees_the_blocks(memory_stage: Stage) -> None:
    stage = memory_stage
    engine = FakeEngine(Script(stall_after=1))
    await stage.worker(engine)
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway(stall_seconds=0.2))

    heard = await stage.ask()

    assert heard.error is not None
    assert (heard.error.code, heard.error.stop) == ("upstream_error", "engine_worker")
    assert "sent nothing for 0.2 s" in heard.error.message
    assert heard.seconds < 2
    await eventually(lambda: not engine.running)
    assert engine.stats().kv_blocks_held == 0
    await eventually(lambda: len(stage.records) == 1)
    assert (stage.records[0].outcome, stage.records[0].usage.completion_tokens) == ("error", 1)


async def test_another_replica_goes_on_where_it_stalled(memory_stage: Stage) -> None:
    stage = memory_stage
    engines = [FakeEngine(Script(stall_after=2)) for _ in range(2)]
    workers = [await stage.worker(engine) for engine in engines]
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway(stall_seconds=0.2))
    request_id = await stage.send(stage.handoff())
    await eventually(lambda: any(engine.running for engine in engines))
    stalled = next(engine for engine in engines if engine.running)
    other = next(engine for engine in engines if engine is not stalled)
    other.script = Script()

    heard = await stage.listen(request_id)

    assert (heard.text, heard.error) == ("".join(WORDS), None)
    assert heard.token_ids == [1, 2, 3, 4, 5]
    await eventually(lambda: not stalled.running)
    await eventually(lambda: len(stage.records) == 2)
    assert [(row.outcome, row.usage.completion_tokens) for row in stage.records] == [
        ("migrated", 2),
        ("finished", 3),
    ]
    assert stage.records[0].replica == workers[engines.index(stalled)].instance


async def test_silence_before_the_first_token_is_not_a_stall(memory_stage: Stage) -> None:
    stage = memory_stage
    engine = FakeEngine(Script(words=("late",)), autoplay=False)
    await stage.worker(engine)
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway(stall_seconds=0.05))

    request_id = await stage.send(stage.handoff())
    listening = asyncio.create_task(stage.listen(request_id))
    await asyncio.wait({listening}, timeout=0.3)
    assert not listening.done()
    engine.step()

    assert (await listening).text == "late"
