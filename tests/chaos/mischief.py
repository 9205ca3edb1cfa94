"""What is done to the system meanwhile: kills, freezes, restarts, one at a time, each waited out.

The same seed deals the same deeds in the same order; when exactly a process dies is up to the machine."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import httpx

from tests.system.live_system import SERVICES, LiveSystem

How = Literal["killed", "asked to leave", "frozen"]

FIRST: tuple[tuple[str, How], ...] = (
    ("engine_worker", "killed"),
    ("llm_gateway", "killed"),
    ("inference_router", "killed"),
    ("edge_api", "killed"),
    ("nats_server", "killed"),
)
"""What each run does at least once, in this order: the short one ends behind it."""
EACH_WAY: tuple[How, ...] = ("killed", "asked to leave", "frozen")
OTHERS: tuple[tuple[str, How], ...] = (
    *FIRST,
    *((victim, how) for victim in (*SERVICES, "nats_server") for how in EACH_WAY),
)
"""Then these, shuffled, again and again; whose end costs most comes most often."""
FROZEN_SECONDS = (0.5, 4.0)
SETTLED_SECONDS = 4.0
"""Until then one that is gone may still be counted as there."""
CALM_SECONDS = (0.5, 3.0)
RECOVERY_SECONDS = 90.0
_SIGNALS = {"killed": signal.SIGKILL, "asked to leave": signal.SIGTERM, "frozen": signal.SIGSTOP}


@dataclass(frozen=True)
class Deed:
    victim: str
    how: How
    at: float
    """On the monotonic clock."""
    back_after: float | None
    """Seconds until the system was whole again; None: not within RECOVERY_SECONDS."""

    @property
    def name(self) -> str:
        return f"{self.victim} {self.how}"


class Mischief:
    """Begins with `start`; `stop` returns when nothing is frozen any more and the last deed is waited out."""

    def __init__(
        self, system: LiveSystem, seed: int, num_replicas: int, victims: Collection[str] = ()
    ) -> None:
        """`victims`: behind the first deeds only these; empty: all."""
        self._others = [deed for deed in OTHERS if not victims or deed[0] in victims]
        self._system = system
        self._num_replicas = num_replicas
        self._dice = random.Random(f"{seed}/mischief")  # noqa: S311  # no secret
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mischief", daemon=True)
        self.done: list[Deed] = []
        self._broke = ""

    @property
    def has_more_to_show(self) -> bool:
        return self._thread.is_alive() and len(self.done) < len(FIRST)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def problems(self) -> Iterator[str]:
        """Why what was done is too little for a verdict."""
        if self._broke:
            yield f"mischief broke off: {self._broke}"
        if len(self.done) < len(FIRST):
            yield f"only {len(self.done)} deeds"

    def _run(self) -> None:
        try:
            self._one_by_one()
        except Exception as error:  # a thread that died in silence would be a calm that proves nothing
            self._broke = repr(error)

    def _one_by_one(self) -> None:
        for victim, how in self._deal():
            if self._ended.wait(self._dice.uniform(*CALM_SECONDS)):
                return
            self._once(victim, how)

    def _deal(self) -> Iterator[tuple[str, How]]:
        yield from FIRST
        while True:
            yield from self._dice.sample(self._others, len(self._others))

    def _once(self, victim: str, how: How) -> None:
        before = self._pids(victim)
        pid = self._dice.choice(before)
        os.kill(pid, _SIGNALS[how])
        at = time.monotonic()
        if how == "frozen":
            self._ended.wait(self._dice.uniform(*FROZEN_SECONDS))
            os.kill(pid, signal.SIGCONT)
        self._ended.wait(SETTLED_SECONDS)
        gone = None if how == "frozen" else pid
        whole = self._is_whole_within(RECOVERY_SECONDS, victim, len(before), gone)
        self.done.append(Deed(victim, how, at, time.monotonic() - at if whole else None))

    def _is_whole_within(self, seconds: float, victim: str, count: int, gone: int | None) -> bool:
        """As many processes of that kind as before, a question would be answered, all replicas are there."""
        give_up_at = time.monotonic() + seconds
        while time.monotonic() < give_up_at:
            pids = self._pids(victim)
            if len(pids) == count and gone not in pids and self._is_ready():
                return True
            time.sleep(0.25)  # other processes: nothing tells of their return but looking
        return False

    def _is_ready(self) -> bool:
        try:
            if self._system.get("/readyz").status_code != 200:
                return False
            return self._system.metric("baton:replica_ready") == self._num_replicas
        except httpx.HTTPError:
            return False

    def _pids(self, victim: str) -> list[int]:
        """In the order in which they were started."""
        name = "nats-server" if victim == "nats_server" else f" -m baton_{victim}"
        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=,ppid=,stat=,command="], check=True, capture_output=True, text=True
        ).stdout  # fmt: skip
        found: list[int] = []
        for line in listed.splitlines():
            pid, parent, state, command = line.split(maxsplit=3)
            if int(parent) == self._system.supervisor_pid and state[0] not in "Z" and name in command:
                found.append(int(pid))
        return sorted(found)
