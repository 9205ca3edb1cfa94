"""What `make chaos` prints of a run: who was under way at a deed, what came of it, what the ledger holds."""

from __future__ import annotations

from tests.chaos.books import Row
from tests.chaos.clients import Asked, Visit
from tests.chaos.mischief import Deed
from tests.chaos.report import Report
from tests.system.client import Heard

A, B, C = "a" * 32, "b" * 32, "c" * 32


def row(request_id: str, attempt: int, outcome: str, *, stand_in: bool = False) -> Row:
    return Row(request_id, "0a1b2c3d", attempt, outcome, None, stand_in, 7, 5)


def report(*problems: str) -> Report:
    whole = Asked(A, Heard(status=200, done=True, seconds=4.0), began=10.0)
    refused = Asked(B, Heard(status=503, seconds=0.1, error={"code": "no_responder"}), began=12.0)
    left = Asked(C, Heard(status=200, left=True, seconds=1.0), began=20.0)
    return Report(
        visits=[Visit((whole,)), Visit((refused, left))],
        deeds=[
            Deed("llm_gateway", "killed", 12.05, 3.0),
            Deed("llm_gateway", "killed", 30.0, 8.6),
            Deed("edge_api", "frozen", 20.5, None),
        ],
        rows={A: [row(A, 1, "migrated"), row(A, 2, "finished")], C: [row(C, 1, "cancelled", stand_in=True)]},
        problems=problems,
        num_witnessed=3,
        seconds=40.0,
        seed=5,
        load=1.25,
    )


def test_each_kind_of_deed_has_its_line() -> None:
    assert list(report().lines()) == [
        "edge_api frozen 1×, whole again within inf s; under way: 1 left",
        "llm_gateway killed 2×, whole again within 9 s; under way: 1 no_responder, 1 whole",
    ]


def test_the_summary() -> None:
    assert report().summary == (
        "chaos: OK: 2 of 2 requests let in, 1 at the first try, in 40 s (0.05/s), seed 5, load 1.2, "
        "the longest 4 s: 1 left, 1 whole; turned away and tried again: 1 no_responder; 3 deeds; "
        "answers that came whole behind a migration 1, at a second try 0; "
        "ledger rows: 1 cancelled, 1 finished, 1 migrated, 1 by stand-in; attempts told of by engines 3"
    )
    assert report("hang: x", "lost row: y").summary.startswith("chaos: 2 PROBLEMS: ")
