"""Many streams at once, some of whose clients leave: nothing stays held, and the books count each once."""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.system.client import Heard, Leave, ask, question
from tests.system.live_system import LiveSystem, eventually


def one(system: LiveSystem, number: int, dice: random.Random) -> Heard:
    """A third leave at their first sight of something, a third in the middle, a third hear it out."""
    leaves_after = dice.choice((-1, dice.randrange(1, 60), 10**6))

    def on_head(_: Heard) -> None:
        if leaves_after < 0:
            raise Leave

    def on_text(heard: Heard) -> None:
        if len(heard.text) >= leaves_after:
            raise Leave

    body = question(
        f"Number {number}: tell me something.", max_tokens=dice.randrange(4, 48), ignore_eos=True,
        stream=dice.random() < 0.8,
    )  # fmt: skip
    return ask(system, body, on_head=on_head, on_text=on_text, seconds=300)


def storm(system: LiveSystem, *, num_requests: int, at_once: int, seed: int) -> list[Heard]:
    dice = [random.Random(seed + number) for number in range(num_requests)]  # noqa: S311 - no secret
    with ThreadPoolExecutor(at_once) as pool:
        asked = [pool.submit(one, system, number, own) for number, own in enumerate(dice)]
        return [future.result(600) for future in asked]


def fds(system: LiveSystem) -> dict[str, int]:
    """Open files of each process, where the system tells."""
    if not sys.platform.startswith("linux"):
        return {}
    return {name: len(os.listdir(Path(f"/proc/{pid}/fd"))) for name, pid in system.pids().items()}  # noqa: PTH208


def check(system: LiveSystem, all_heard: list[Heard]) -> None:
    for heard in all_heard:
        assert heard.left or heard.complete, heard
    system.wait_at_rest(seconds=60)
    assert system.metric("vllm:kv_cache_usage_perc") == 0
    ids = [heard.request_id for heard in all_heard]
    assert len(set(ids)) == len(ids)
    for heard in all_heard:
        rows = eventually(lambda wanted=heard.request_id: system.usage(wanted), "a ledger row")
        assert [row["attempt"] for row in rows] == [1]
        assert rows[0]["outcome"] in ({"finished"} if heard.complete else {"finished", "cancelled"})
        if heard.complete and heard.usage:
            assert rows[0]["usage"]["completion_tokens"] == heard.usage["completion_tokens"]


def test_a_few(system: LiveSystem) -> None:
    check(system, storm(system, num_requests=16, at_once=8, seed=1))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_hundred_thirty_two_at_once(system: LiveSystem) -> None:
    check(system, storm(system, num_requests=32, at_once=32, seed=100))  # what grows once, has grown
    before, pids = fds(system), system.pids()
    check(system, storm(system, num_requests=100, at_once=32, seed=200))
    assert system.pids() == pids
    grown = {name: (before[name], now) for name, now in fds(system).items() if now > before[name] + 2}
    assert not grown
    assert ask(system, question(max_tokens=4)).complete
