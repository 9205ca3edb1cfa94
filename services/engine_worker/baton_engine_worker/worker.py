"""All requests that this process holds: each handled by a run of its own, all handed back together.

Owns the set of runs. What a run does is work's.
"""

from __future__ import annotations

from baton_common.context import RequestContext
from baton_contracts.handoffs import EngineHandoff
from baton_engine_worker.attempt import WorkerParts, attempt_of
from baton_engine_worker.work import EngineRun


class Worker:
    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._runs: set[EngineRun] = set()

    async def handle(self, ctx: RequestContext, handoff: EngineHandoff) -> None:
        run = EngineRun(attempt_of(self._parts, ctx, handoff))
        self._runs.add(run)
        try:
            await run.run()
        finally:
            self._runs.discard(run)

    def hand_back(self) -> None:
        """All that is held goes back to its gateways."""
        for run in self._runs:
            run.hand_back()
