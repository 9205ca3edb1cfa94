from __future__ import annotations

import asyncio
import threading

from baton_engine import RequestDelta
from baton_engine_worker.steps import StepBridge


class CountingLoop:
    """The running loop, with its crossings counted."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.crossings = 0

    def call_soon_threadsafe(self, *args: object) -> None:
        self.crossings += 1
        self.loop.call_soon_threadsafe(*args)


async def test_all_deltas_of_a_step_cross_together_and_in_order() -> None:
    loop, done = CountingLoop(), asyncio.Event()
    bridge = StepBridge(loop, done.set)
    heard: dict[str, list[int]] = {"a": [], "b": []}
    callbacks = {
        name: bridge.on_delta(lambda delta, name=name: heard[name].extend(delta.token_ids)) for name in heard
    }

    def engine() -> None:
        for step in range(3):
            for name, callback in callbacks.items():
                callback(RequestDelta(name, token_ids=(step,)))
            bridge.step_done()

    thread = threading.Thread(target=engine)
    thread.start()
    await asyncio.to_thread(thread.join)
    await done.wait()

    assert loop.crossings == 3
    assert heard == {"a": [0, 1, 2], "b": [0, 1, 2]}


async def test_an_event_loop_that_has_ended_does_not_break_the_engine() -> None:
    ended = asyncio.new_event_loop()
    ended.close()
    bridge = StepBridge(ended)
    bridge.on_delta(lambda _: None)(RequestDelta("a"))
    bridge.step_done()
