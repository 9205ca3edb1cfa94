"""The engine worker as a process that holds a request: killed, broken inside, asked to leave."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from baton_engine_worker.lifecycle import EXIT_ENGINE_FAILED
from tests.support.relay_stage import MODEL, Stage
from tests.support.restricted_nats import RestrictedNats
from tests.support.scripted_answer import WORDS
from tests.support.service_process import ServiceProcess
from tests.support.waiting import eventually

ANSWER = "".join(WORDS)
STARTS_SECONDS = 60.0
"""A request lives longer than the start of the process that goes on with it."""
SETTINGS: dict[str, str] = {}
"""Further ones of the worker."""


@asynccontextmanager
async def running_worker(nats: RestrictedNats, **script: Any) -> AsyncGenerator[ServiceProcess, None]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
    environment |= nats.environment("engine_worker")
    environment |= SETTINGS | {"BATON_MODEL": MODEL, "BATON_TEST_SCRIPT": json.dumps(script)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.scripted_worker",
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    running = ServiceProcess(process)
    try:
        await running.logged("is ready", seconds=60)
        yield running
    finally:
        if process.returncode is None:
            await running.kill()


def instance_of(worker: ServiceProcess) -> str:
    line = next(line for line in worker.lines if line.endswith("is ready"))
    return line.split()[-3]


async def test_killed_before_the_first_token_another_replica_answers(
    stage: Stage, relay_nats: RestrictedNats
) -> None:
    async with AsyncExitStack() as stack:
        stuck = await stack.enter_async_context(running_worker(relay_nats, stall_after=0))
        await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
        request_id = await stage.send(stage.handoff(seconds=STARTS_SECONDS))
        heard = await stage.listen(request_id, until=lambda heard: bool(heard.prologues))
        assert heard.prologues[0].replica == instance_of(stuck)
        sound = await stack.enter_async_context(running_worker(relay_nats))
        await stuck.kill()
        heard = await stage.listen(request_id, into=heard)

        assert heard.error is None
        assert heard.text == ANSWER
        assert heard.token_ids == [1, 2, 3, 4, 5]
        await eventually(lambda: len(stage.records) == 2)
        rows = [(row.outcome, row.replica) for row in stage.records]
        assert rows == [("error", instance_of(stuck)), ("finished", instance_of(sound))]


async def test_killed_in_the_middle_another_replica_goes_on(stage: Stage, relay_nats: RestrictedNats) -> None:
    words = [f"w{number} " for number in range(60)]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running_worker(relay_nats, words=words, stall_after=40))
        await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
        request_id = await stage.send(stage.handoff(seconds=STARTS_SECONDS))
        heard = await stage.listen(request_id, until=lambda heard: len(heard.token_ids) >= 20)
        second = await stack.enter_async_context(running_worker(relay_nats, words=words))
        killed_at = time.monotonic()
        await first.kill()
        heard = await stage.listen(request_id, into=heard)
        waited_seconds = time.monotonic() - killed_at

    assert heard.error is None
    assert heard.text == "".join(words)
    assert heard.token_ids == list(range(1, 61))
    assert len(heard.prologues) == 1
    assert heard.end is not None
    assert heard.end.usage.completion_tokens == 60
    assert waited_seconds < 15
    await eventually(lambda: len(stage.records) == 2)
    rows = [(row.outcome, row.replica, row.error_code) for row in stage.records]
    assert rows == [
        ("migrated", instance_of(first), "stop_lost"),
        ("finished", instance_of(second), None),
    ]
    assert sum(row.usage.completion_tokens for row in stage.records) == 60
    assert sum(row.usage.prompt_tokens for row in stage.records) == heard.end.usage.prompt_tokens == 7


async def test_an_engine_that_breaks_ends_its_requests_and_its_process(
    stage: Stage, relay_nats: RestrictedNats
) -> None:
    async with running_worker(relay_nats, crash_after=2) as worker:
        await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
        heard = await stage.ask()
        code = await asyncio.wait_for(worker.process.wait(), 10)

    assert heard.error is not None
    assert (heard.error.code, heard.error.stop) == ("upstream_error", "engine_worker")
    assert "the step loop broke" in heard.error.message
    assert heard.text == "The answer "
    assert code == EXIT_ENGINE_FAILED
    later = await stage.ask()
    assert later.error is not None
    assert later.error.code == "no_ready_replica"


async def test_asked_to_leave_it_hands_back_what_takes_too_long(
    stage: Stage, relay_nats: RestrictedNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "BATON_DRAIN_SECONDS", "0.2")
    words = [f"w{number} " for number in range(30)]
    async with AsyncExitStack() as stack:
        leaving = await stack.enter_async_context(running_worker(relay_nats, words=words, stall_after=9))
        await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
        request_id = await stage.send(stage.handoff(seconds=STARTS_SECONDS))
        heard = await stage.listen(request_id, until=lambda heard: len(heard.token_ids) >= 9)
        await stack.enter_async_context(running_worker(relay_nats, words=words))
        code = await leaving.terminate()
        heard = await stage.listen(request_id, into=heard)

    assert code == 0
    assert heard.error is None
    assert heard.token_ids == list(range(1, 31))
    await eventually(lambda: len(stage.records) == 2)
    assert [(row.outcome, row.error_code) for row in stage.records] == [
        ("migrated", "shutting_down"),
        ("finished", None),
    ]


async def test_asked_to_leave_it_finishes_what_it_holds(stage: Stage, relay_nats: RestrictedNats) -> None:
    words = [f"w{number} " for number in range(400)]
    async with running_worker(relay_nats, words=words, step_seconds=0.005) as worker:
        await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
        request_id = await stage.send(stage.handoff(seconds=STARTS_SECONDS))
        heard = await stage.listen(request_id, until=lambda heard: len(heard.token_ids) >= 5)
        leaving = asyncio.create_task(worker.terminate())
        await worker.logged("draining 1 requests")
        refused = await stage.ask()
        heard = await stage.listen(request_id, into=heard)
        code = await leaving

    assert heard.error is None
    assert heard.text == "".join(words)
    assert refused.error is not None
    assert refused.error.code == "no_ready_replica"
    assert code == 0
