"""What `make chaos` takes for a right end of a request, and what it does not; and mischief that broke off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.clients import UNREADABLE, Asked
from tests.chaos.mischief import Deed, How, Mischief
from tests.chaos.promises import closes_connections
from tests.system.client import Heard
from tests.system.live_system import LiveSystem, eventually


def error(code: str) -> dict[str, str | None]:
    return {"message": "m", "type": "t", "param": None, "code": code}


@pytest.mark.parametrize(
    ("heard", "is_well"),
    [
        (Heard(status=200, done=True), True),
        (Heard(status=200, left=True), True),
        (Heard(status=502, error=error("stop_lost")), True),
        (Heard(status=200, error=error("stop_lost")), True),
        (Heard(status=200, broke="ReadError"), True),
        (Heard(status=200, broke="ReadTimeout"), False),
        (Heard(status=500, error=error("stop_failed")), False),
        (Heard(status=401, error=error("invalid_api_key")), False),
        (Heard(status=200, error=error("invalid_api_key")), False),
        (Heard(status=409, error=error("conflict")), False),
        (Heard(status=499, error=error("client_closed_request")), False),
        (Heard(status=502, error=error("a word of no contract")), False),
        (Heard(status=400, error=error("invalid_value")), False),
        (Heard(status=502, error={"code": "stop_lost"}), False),
        (Heard(broke=f"{UNREADABLE}: KeyError('choices')"), False),
        (Heard(status=200), False),
    ],
)
def test_which_ends_are_right(heard: Heard, is_well: bool) -> None:
    assert Asked("0" * 32, heard, began=0.0).ended_well is is_well


@pytest.mark.parametrize(
    ("victim", "how", "at", "back_after", "may"),
    [
        ("edge_api", "killed", 105.0, 8.0, True),
        ("edge_api", "killed", 110.4, 8.0, True),  # its client was quicker than who did it
        ("edge_api", "asked to leave", 95.0, 8.0, True),
        ("edge_api", "asked to leave", 50.0, None, True),
        ("edge_api", "killed", 80.0, 8.0, False),
        ("edge_api", "killed", 120.0, 8.0, False),
        ("llm_gateway", "killed", 105.0, 8.0, False),
    ],
)
def test_only_an_edge_that_goes_closes_a_connection(
    victim: str, how: How, at: float, back_after: float | None, may: bool
) -> None:
    cut_off = Asked("0" * 32, Heard(status=200, broke="ReadError", seconds=10.0), began=100.0)
    assert cut_off.was_cut_off
    assert closes_connections(Deed(victim, how, at, back_after), cut_off) is may


@pytest.mark.parametrize(
    ("heard", "hangs"),
    [
        (Heard(status=200, done=True, seconds=119.0), False),
        (Heard(status=200, done=True, seconds=121.0), True),
        (Heard(status=200, broke="ReadTimeout", seconds=60.0), True),
        (Heard(status=504, error=error("idle_timeout"), seconds=60.0), True),
        (Heard(status=504, error=error("deadline_exceeded"), seconds=60.0), True),
        (Heard(status=502, error=error("stop_lost"), seconds=60.0), False),
    ],
)
def test_what_is_a_hang(heard: Heard, hangs: bool) -> None:
    asked = Asked("0" * 32, heard, began=0.0)
    assert asked.hung is hangs
    assert (asked.end == "hung") is hangs


def test_no_edge_at_the_door_is_not_cut_off() -> None:
    assert not Asked("0" * 32, Heard(broke="ConnectError"), began=0.0).was_cut_off


def test_a_run_whose_victim_was_not_there_is_no_good_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: Mischief, victim: str) -> list[int]:
        return []

    monkeypatch.setattr(Mischief, "_pids", nobody)
    monkeypatch.setattr("tests.chaos.mischief.CALM_SECONDS", (0.0, 0.0))
    mischief = Mischief(LiveSystem(tmp_path / "home"), seed=1, num_replicas=2)
    mischief.start()
    eventually(lambda: not mischief.has_more_to_show, "the first deed was tried")
    mischief.stop()
    broke, too_few = mischief.problems()
    assert broke.startswith("mischief broke off: IndexError")
    assert too_few == "only 0 deeds"
