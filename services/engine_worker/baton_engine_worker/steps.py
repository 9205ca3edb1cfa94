"""From the engine's thread into the event loop: all deltas of one step in one crossing.

`on_delta` and `step_done` run in the engine's thread and only append and post; the sinks run in the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from baton_engine import RequestDelta

log = logging.getLogger(__name__)

Sink = Callable[[RequestDelta], None]


class StepBridge:
    def __init__(self, loop: asyncio.AbstractEventLoop, after_step: Callable[[], None] | None = None) -> None:
        self._loop = loop
        self._after_step = after_step
        self._pending: list[tuple[Sink, RequestDelta]] = []  # touched by the engine's thread alone

    def on_delta(self, sink: Sink) -> Callable[[RequestDelta], None]:
        """The callback to submit with; what it is given reaches `sink` when the step is done."""

        def collect(delta: RequestDelta) -> None:
            self._pending.append((sink, delta))

        return collect

    def step_done(self) -> None:
        batch, self._pending = self._pending, []
        try:
            self._loop.call_soon_threadsafe(self._deliver, batch)
        except RuntimeError:
            log.debug("the event loop has ended; %d deltas had nobody to go to", len(batch))

    def _deliver(self, batch: list[tuple[Sink, RequestDelta]]) -> None:
        for sink, delta in batch:
            sink(delta)
        if self._after_step:
            self._after_step()
