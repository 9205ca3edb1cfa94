"""One run: a system with two replicas, a key with limits, clients and mischief; then the verdict."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.clients import Asked, all_of_them
from tests.chaos.mischief import Mischief
from tests.chaos.verdict import problems
from tests.system.live_system import LiveSystem, eventually

NUM_REPLICAS = 2
LIMITS = ("--rpm", "1000000", "--tpm", "100000000", "--concurrent", "1000", "--budget", "1000")


@dataclass(frozen=True)
class Report:
    asked: list[Asked]
    done: Counter[str]
    problems: list[str]
    seconds: float
    seed: int

    @property
    def summary(self) -> str:
        ends = Counter(_end_of(one) for one in self.asked)
        told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
        deeds = ", ".join(f"{what} {count}×" for what, count in sorted(self.done.items())) or "nothing"
        let_in = sum(one.was_let_in for one in self.asked)
        verdict = "OK" if not self.problems else f"{len(self.problems)} PROBLEMS"
        return (
            f"chaos: {verdict}: {let_in} requests let in of {len(self.asked)} in {self.seconds:.0f} s, "
            f"seed {self.seed} ({told}); {deeds}"
        )


def _end_of(one: Asked) -> str:
    heard = one.heard
    if one.hung:
        return "hung"
    if heard.left:
        return "left"
    if heard.complete:
        return "whole"
    if heard.error:
        return str(heard.error.get("code"))
    return "cut off" if heard.broke else "other"


def chaos(home: Path, *, num_requests: int, at_once: int, seed: int) -> Report:
    system = LiveSystem(
        home, "--no-large", "--replicas", str(NUM_REPLICAS), BATON_ENGINE_KV_MEMORY_MB="256",
        BATON_ENGINE_DTYPE="float32",
    )  # fmt: skip
    system.start()
    try:
        key = _limited_key(system)
        began, started = time.time(), time.monotonic()
        mischief = Mischief(system, seed)
        mischief.start()
        try:
            asked = all_of_them(system, key, num_requests=num_requests, at_once=at_once, seed=seed)
        finally:
            mischief.stop()
        seconds = time.monotonic() - started
        found = problems(system, key, asked, began=began)
        return Report(asked, mischief.done, found, seconds, seed)
    finally:
        system.stop() if system.is_running else system.kill()


def _limited_key(system: LiveSystem) -> str:
    made = system.cli("keys", "create", "chaos", *LIMITS)
    found = re.search(r"^sk-\S+", made.stdout, re.MULTILINE)
    assert found, made.stdout + made.stderr
    key = found[0]
    eventually(lambda: system.get("/v1/models", key=key).status_code == 200, "the key is known")
    return key
