"""The replica's life: load, warm up, ready, draining, gone; and its end when the engine fails.

A failed engine has already given every request it held an error; this process then leaves with a non-zero
code, so that its supervisor starts a new one. Half an engine is worse than none.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from baton_common.actor import Actor
from baton_common.clock import Clock
from baton_common.node import Node
from baton_contracts.handoffs import EngineHandoff
from baton_engine import EngineError, EngineRequest, RequestDelta, SamplingParams
from baton_engine_worker.engine_face import Engine
from baton_engine_worker.heartbeat import Heartbeat
from baton_engine_worker.steps import StepBridge
from baton_engine_worker.worker import Worker

log = logging.getLogger(__name__)

WARM_UP_SECONDS = 120.0
LAST_FRAMES_SECONDS = 2.0
EXIT_ENGINE_FAILED = 70
"""EX_SOFTWARE of sysexits.h."""


async def start_engine(engine: Engine, heartbeat: Heartbeat, bridge: StepBridge) -> None:
    """Loads, then answers one tiny question: a replica that can't is not ready. Raises EngineError."""
    await engine.start(heartbeat.set_stage)
    engine.set_step_listener(bridge.step_done)
    heartbeat.set_stage("warm_up")
    await warm_up(engine, bridge)
    heartbeat.count_from_here()


async def warm_up(engine: Engine, bridge: StepBridge) -> None:
    answered: asyncio.Future[RequestDelta] = asyncio.get_running_loop().create_future()

    def note(delta: RequestDelta) -> None:
        if delta.finish_reason is not None and not answered.done():
            answered.set_result(delta)

    request = EngineRequest(
        request_id="warm-up",
        prompt_token_ids=engine.tokenizer.encode("The quick brown fox") or [0],
        sampling=SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True),
        cache_salt="warm-up",
    )
    engine.submit(request, bridge.on_delta(note))
    async with asyncio.timeout(WARM_UP_SECONDS):
        last = await answered
    if last.finish_reason == "error":
        raise EngineError(f"the warm-up question failed: {last.error.message if last.error else 'no reason'}")


class FailureWatch:
    """Looks after each step, and each quarter second, whether the engine still works. One whose step does not
    end is as broken as one that says so: it would hold every request for ever."""

    def __init__(self, engine: Engine, clock: Clock, stuck_seconds: float) -> None:
        self._engine = engine
        self._clock = clock
        self._stuck_seconds = stuck_seconds
        self._progress = (0, clock.monotonic())
        self._failure: str | None = None
        self._failed = asyncio.Event()

    def look(self) -> None:
        if self._engine.state == "failed":
            self._fail(self._engine.failure or "no reason given")
        elif self._engine.state == "ready":
            self._look_at_progress()

    def _look_at_progress(self) -> None:
        stats, now = self._engine.stats(), self._clock.monotonic()
        steps, since = self._progress
        if stats.steps_total != steps or not stats.running + stats.waiting:
            self._progress = (stats.steps_total, now)
        elif now - since > self._stuck_seconds:
            self._fail(f"no step has ended for {self._stuck_seconds:g} s")

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._failed.set()

    async def failed(self, interval_seconds: float = 0.25) -> str:
        """Returns when the engine has failed, with its reason."""
        while self._failure is None:
            try:
                async with asyncio.timeout(interval_seconds):
                    await self._failed.wait()
            except TimeoutError:
                self.look()
        return self._failure


async def hand_back(worker: Worker, actor: Actor[EngineHandoff]) -> None:
    """What was not finished while draining: its gateways go on elsewhere."""
    if not actor.num_held:
        return
    log.info("handing back %d requests", actor.num_held)
    worker.hand_back()
    try:
        async with asyncio.timeout(LAST_FRAMES_SECONDS):
            await actor.finished()
    except TimeoutError:
        log.error("%d requests were not handed back", actor.num_held)


async def leave_when_failed(
    watch: FailureWatch, actor: Actor[EngineHandoff], node: Node, leave: Callable[[int], None] = os._exit
) -> None:
    """Ends the process once the engine has failed, after the last frames have gone out. At once and without
    clean-up: the engine's thread may never come back, and nobody can join it."""
    log.error("the engine failed: %s", await watch.failed())
    await actor.stop_taking()
    try:
        async with asyncio.timeout(LAST_FRAMES_SECONDS):
            await actor.finished()
    except TimeoutError:
        log.error("%d requests did not get their last frame", actor.num_held)
    await node.stop()
    await node.bus.close()
    leave(EXIT_ENGINE_FAILED)
