"""The engine worker as a process, with a scripted engine in it: `python -m tests.support.scripted_worker`.

`BATON_TEST_SCRIPT` is JSON: the fields of Script, and `crash_after`, the step at which the engine breaks.
"""

from __future__ import annotations

import json
import os
from contextlib import AbstractAsyncContextManager

from baton_common.bus import Bus
from baton_common.node import Node
from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_engine_worker.__main__ import wire
from baton_engine_worker.settings import Settings
from tests.support.fake_engine import FakeEngine
from tests.support.scripted_answer import Script


class BreakingEngine(FakeEngine):
    def __init__(self, script: Script, crash_after: int | None) -> None:
        super().__init__(script)
        self.crash_after = crash_after

    def step(self) -> None:
        super().step()
        warmed_up = any(held.asked.request_id != "warm-up" for held in self.running)
        emitted = max((held.emitted for held in self.running), default=0)
        if warmed_up and self.crash_after is not None and emitted >= self.crash_after:
            self.crash()


def main() -> None:
    settings = load_settings(Settings)
    fields = json.loads(os.environ["BATON_TEST_SCRIPT"])
    crash_after = fields.pop("crash_after", None)
    fields["words"] = tuple(fields.get("words", Script().words))

    def start(node: Node, bus: Bus) -> AbstractAsyncContextManager[None]:
        return wire(settings, BreakingEngine(Script(**fields), crash_after), node, bus)

    run_service("engine_worker", settings, start)


if __name__ == "__main__":
    main()
