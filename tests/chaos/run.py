"""One run: a system with two replicas, a key with limits, clients and mischief; then the verdict."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from pathlib import Path

from tests.chaos.clients import Clients
from tests.chaos.light_model import write_light_model
from tests.chaos.mischief import Mischief
from tests.chaos.report import Report
from tests.chaos.verdict import Verdict
from tests.system.live_system import LiveSystem, eventually

NUM_REPLICAS = 2
LIMITS = (
    "--rpm",
    "1000000",
    "--tpm",
    "100000000",
    "--concurrent",
    "1000",
    "--budget",
    "1000",
    "--period",
    "total",
)


def chaos(
    home: Path,
    *,
    num_requests: int,
    at_once: int,
    seed: int,
    light: bool = False,
    victims: Collection[str] = (),
) -> Report:
    """`light`: with a model of two random layers, see light_model.py. `victims`: see Mischief."""
    if light:
        write_light_model(home / "models")
    kv_memory = "16" if light else "256"
    system = LiveSystem(
        home, "--no-large", "--replicas", str(NUM_REPLICAS), BATON_ENGINE_KV_MEMORY_MB=kv_memory
    )  # fmt: skip
    system.start()
    try:
        key = _limited_key(system)
        began, started = time.time(), time.monotonic()
        mischief = Mischief(system, seed, NUM_REPLICAS, victims)
        mischief.start()
        try:
            visits = Clients(system, key, seed).all_of_them(
                num_requests=num_requests, at_once=at_once, more=lambda: mischief.has_more_to_show
            )
        finally:
            seconds, load = time.monotonic() - started, os.getloadavg()[1]
            mischief.stop()
        verdict = Verdict(system, key, visits, mischief.done, began=began, num_replicas=NUM_REPLICAS)
        problems = [*mischief.problems(), *verdict.problems()]
        return Report(
            visits, mischief.done, verdict.books.rows, problems, verdict.num_witnessed, seconds, seed, load
        )
    finally:
        system.stop() if system.is_running else system.kill()


def _limited_key(system: LiveSystem) -> str:
    made = system.cli("keys", "create", "chaos", *LIMITS)
    found = re.search(r"^sk-\S+", made.stdout, re.MULTILINE)
    assert found, made.stdout + made.stderr
    key = found[0]
    eventually(lambda: system.get("/v1/models", key=key).status_code == 200, "the key is known")
    return key
