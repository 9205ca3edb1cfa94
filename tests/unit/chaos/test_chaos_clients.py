"""What `make chaos` takes for a right end of a request, and what it does not; and mischief that broke off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.clients import UNREADABLE, Asked, Wish
from tests.chaos.mischief import EACH_WAY, OTHERS, Deed, Mischief
from tests.chaos.promises import may_cause, was_meanwhile
from tests.system.client import Heard
from tests.system.live_system import SERVICES, LiveSystem, eventually


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
    ("at", "back_after", "is_meanwhile"),
    [
        (105.0, 8.0, True),
        (110.4, 8.0, True),  # its client was quicker than who did it
        (95.0, 8.0, True),
        (50.0, None, True),
        (80.0, 8.0, False),
        (120.0, 8.0, False),
    ],
)
def test_which_deeds_a_request_may_feel(at: float, back_after: float | None, is_meanwhile: bool) -> None:
    one = Asked("0" * 32, Heard(status=200, seconds=10.0), began=100.0)
    assert was_meanwhile(Deed("edge_api", "killed", at, back_after), one) is is_meanwhile


CUT_OFF = Heard(status=200, broke="ReadError")
NO_EDGE = Heard(broke="ConnectError")
BROKEN = Heard(status=200, error=error("stop_lost"))
TURNED_AWAY = Heard(status=503, error=error("no_responder"))
NOBODY_ELSE = ("engine_worker", "after_answer", "trace_console")


@pytest.mark.parametrize(
    ("heard", "wish", "victims"),
    [
        (CUT_OFF, "an answer", {"edge_api"}),
        (NO_EDGE, "an answer", {"edge_api"}),
        (BROKEN, "an answer", {"edge_api", "llm_gateway", "output_guardrails"}),
        (TURNED_AWAY, "an answer", {*SERVICES, "nats_server"} - {*NOBODY_ELSE, "embedder"}),
        (TURNED_AWAY, "an embedding", {"edge_api", "embedder", "nats_server"}),
    ],
)
def test_who_may_be_the_cause(heard: Heard, wish: Wish, victims: set[str]) -> None:
    one = Asked("0" * 32, heard, 100.0, wish)
    found = {
        victim for victim in (*SERVICES, "nats_server") if may_cause(Deed(victim, "killed", 100.0, 1.0), one)
    }
    assert found == victims


@pytest.mark.parametrize(("heard", "may"), [(CUT_OFF, False), (NO_EDGE, False), (BROKEN, True)])
def test_a_frozen_edge_closes_no_connection(heard: Heard, may: bool) -> None:
    assert may_cause(Deed("edge_api", "frozen", 100.0, 1.0), Asked("0" * 32, heard, began=100.0)) is may


def test_all_are_killed_frozen_and_asked_to_leave() -> None:
    assert {(victim, how) for victim in (*SERVICES, "nats_server") for how in EACH_WAY} == set(OTHERS)


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
