"""What is done to the system meanwhile: kills, freezes, restarts, at moments and of processes that dice name.

The same seed names the same victims in the same order; when exactly a process dies is up to the machine."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections import Counter
from contextlib import suppress

from tests.system.live_system import LiveSystem

VICTIMS = (
    *("engine_worker",) * 4,
    *("llm_gateway",) * 2,
    *("inference_router",) * 2,
    "edge_api",
    "nats_server",
)
PAUSE_SECONDS = (2.0, 5.0)
FROZEN_SECONDS = (0.5, 4.0)
MERCY = 0.7
"""Share of deeds before which what was done last is waited out: else nobody would be left to answer."""
RECOVERY_SECONDS = 40.0


class Mischief:
    """Begins with `start`; `stop` returns when nothing is frozen any more."""

    def __init__(self, system: LiveSystem, seed: int) -> None:
        self._system = system
        self._dice = random.Random(f"{seed}/mischief")  # noqa: S311  # no secret
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mischief", daemon=True)
        self.done: Counter[str] = Counter()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._dice.uniform(*PAUSE_SECONDS)):
            if self._dice.random() < MERCY:
                self._let_it_recover()
            self._once(self._dice.choice(VICTIMS), self._dice.random())

    def _let_it_recover(self) -> None:
        with suppress(AssertionError):
            self._system.wait_ready(seconds=RECOVERY_SECONDS)

    def _once(self, victim: str, how: float) -> None:
        pids = self._pids(victim)
        if not pids:
            return
        pid = self._dice.choice(pids)
        try:
            if victim == "nats_server" or how < 0.6:
                self._signal(pid, victim, "killed", signal.SIGKILL)
            elif how < 0.8:
                self._signal(pid, victim, "asked to leave", signal.SIGTERM)
            else:
                self._signal(pid, victim, "frozen", signal.SIGSTOP)
                self._ended.wait(self._dice.uniform(*FROZEN_SECONDS))
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return  # it was on its way out

    def _signal(self, pid: int, victim: str, what: str, number: signal.Signals) -> None:
        os.kill(pid, number)
        self.done[f"{victim} {what}"] += 1

    def _pids(self, victim: str) -> list[int]:
        """In the order in which they were started."""
        name = "nats-server" if victim == "nats_server" else f" -m baton_{victim}"
        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=,ppid=,stat=,command="], check=True, capture_output=True, text=True
        ).stdout  # fmt: skip
        found: list[int] = []
        for line in listed.splitlines():
            pid, parent, state, command = line.split(maxsplit=3)
            if int(parent) == self._system.supervisor_pid and state[0] not in "ZT" and name in command:
                found.append(int(pid))
        return sorted(found)
