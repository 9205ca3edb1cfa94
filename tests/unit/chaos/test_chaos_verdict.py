"""`make chaos` notices each broken promise, wherever it is to be seen: a sound run, and one fault each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy.engine import URL

from baton_after_answer.books import Books, Entry
from baton_after_answer.database import migrate, open_engine
from baton_after_answer.records import ledger_row, rejected_row, turn_row
from baton_cli.errors import CliError
from baton_cli.reconcile.evidence import EngineRun, Evidence, TheClient
from baton_contracts.frames import Usage
from baton_contracts.limits import AccountState, Slot
from baton_contracts.records import ConversationRecord, UsageRecord
from tests.chaos.clients import Asked, Visit
from tests.chaos.mischief import Deed
from tests.chaos.verdict import Verdict
from tests.support.after_records import conversation_record, usage_record
from tests.system.client import Heard
from tests.system.live_system import SERVICES, LiveSystem

WHOLE, LEFT = "a" * 32, "b" * 32
REPLICA, OTHER = "engine_worker-1", "engine_worker-2"
BEGAN = 1000.0
TRACEBACK = """\
llm_gateway        │ error   handler failed
llm_gateway        │ Traceback (most recent call last):
llm_gateway        │   File "actor.py", line 1, in run
llm_gateway        │ KeyError: 'seat'
"""


def row(request_id: str, said: int, outcome: str, **changes: Any) -> UsageRecord:
    usage = Usage(prompt_tokens=7, completion_tokens=said)
    told = {
        "request_id": request_id,
        "replica": REPLICA,
        "usage": usage,
        "cost_picos": 0,
        "outcome": outcome,
        "ended_at": 1010,
    }
    return usage_record(**(told | changes))


def ran(request_id: str, said: int, **changes: Any) -> EngineRun:
    told = {"request_id": request_id, "replica": REPLICA, "completion_tokens": said}
    return EngineRun(**({"attempt": 1, "prompt_tokens": 7, "ended_at": 1010.0} | told | changes))


def heard_whole() -> Heard:
    return Heard(
        status=200, text="Kiwi", done=True, seconds=2.0, usage={"prompt_tokens": 7, "completion_tokens": 5}
    )


@dataclass
class Run:
    """What is seen behind a sound run: one client heard its answer out, one left in the middle."""

    tries: list[list[Asked]] = field(
        default_factory=lambda: [
            [Asked(WHOLE, heard_whole(), 10.0)],
            [Asked(LEFT, Heard(status=200, text="Ki", left=True, seconds=1.0), 11.0)],
        ]
    )
    deeds: list[Deed] = field(default_factory=lambda: [Deed("engine_worker", "killed", 10.5, 4.0)])
    rows: list[UsageRecord] = field(
        default_factory=lambda: [row(WHOLE, 5, "finished"), row(LEFT, 2, "cancelled")]
    )
    turns: list[ConversationRecord] = field(
        default_factory=lambda: [conversation_record(request_id=name) for name in (WHOLE, LEFT)]
    )
    rejected: list[str] = field(default_factory=list[str])
    waiting: int = 0
    evidence: Evidence = field(
        default_factory=lambda: Evidence(
            rows=[row(WHOLE, 5, "finished"), row(LEFT, 2, "cancelled")],
            runs=[ran(WHOLE, 5), ran(LEFT, 2)],
            clients=[TheClient(WHOLE, 7, 5, 1010.0)],
        )
    )
    use: dict[str, AccountState] = field(
        default_factory=lambda: {
            "use.key.key_acme": AccountState(requests=2, slots={"edge_api-1": Slot(seq=4)})
        }
    )
    asked_for_limits: int = 0
    log: str = "edge_api           │ info    edge_api-1 is ready\n"
    stats: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {"held": 0, "cancellable": 0} for name in SERVICES}
    )
    num_ready: int = 2
    blocks_held: int = 0
    home: Path = Path()

    def write_books(self) -> None:
        engine = open_engine(URL.create("sqlite", database=str(self.home / "books.sqlite")))
        migrate(engine)
        ledger = [ledger_row(record, 1.0) for record in self.rows]
        turns = [turn_row(record, 1.0) for record in self.turns]
        rejected = [rejected_row("after.usage", b"{}", why, 1.0) for why in self.rejected]
        Books(engine).write(Entry(ledger=ledger, turns=turns, rejected=rejected))
        engine.dispose()


class ShotAt(LiveSystem):
    """A system of which everything is known, that never ran."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.home)
        self._run = run

    @property
    def log(self) -> str:
        return self._run.log

    def wait_ready(self, *, seconds: float = 0.0) -> None:
        return None

    def metric(self, name: str) -> float:
        counters = {"baton:replica_ready": self._run.num_ready, "baton:kv_blocks_held": self._run.blocks_held}
        return counters.get(name, 0)

    def stats(self) -> dict[str, dict[str, int]]:
        return self._run.stats

    def operator(self) -> dict[str, str]:
        return {"nats_url": "nats://nowhere", "user": "operator", "password": "p", "tenant_id": "acme"}

    def post(self, body: object, **headers: str) -> Any:
        self._run.asked_for_limits += 1


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    run = Run(home=tmp_path)

    async def collect(_: object, *, since: float) -> Evidence:
        assert since == BEGAN
        if isinstance(run.evidence, Exception):
            raise run.evidence
        return run.evidence

    async def num_records_waiting(_: LiveSystem) -> int:
        return run.waiting

    async def use(_: LiveSystem) -> dict[str, AccountState]:
        return run.use

    monkeypatch.setattr("tests.chaos.verdict.collect", collect)
    monkeypatch.setattr("tests.chaos.verdict._num_records_waiting", num_records_waiting)
    monkeypatch.setattr("tests.chaos.verdict._use", use)
    for name in ("REST_SECONDS", "BUSY_BOOKS_SECONDS", "LIMITS_SECONDS", "SPENDING_SECONDS"):
        monkeypatch.setattr(f"tests.chaos.verdict.{name}", 0.0)
    return run


def problems(run: Run) -> list[str]:
    run.write_books()
    visits = [Visit(tuple(tries)) for tries in run.tries]
    verdict = Verdict(ShotAt(run), "sk-key", visits, run.deeds, began=BEGAN, num_replicas=2)
    return list(verdict.problems())


def hears(run: Run, number: int, **changes: Any) -> None:
    [one] = run.tries[number]
    run.tries[number] = [Asked(one.request_id, Heard(**({"status": 200} | changes)), one.began)]


def test_books_that_can_not_be_read_are_a_problem_and_the_rest_is_looked_at(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "write_books", lambda: None)
    run.log += "edge_api           │ Traceback (most recent call last):\nedge_api           │ KeyError: 'x'\n"
    books, limits, log = problems(run)
    assert books == "books: unable to open database file"
    assert limits == "limits: unable to open database file"
    assert "traceback 1" in log


def test_a_sound_run_has_no_problems(run: Run) -> None:
    assert problems(run) == []


@pytest.mark.parametrize(("at", "num_problems"), [(11.5, 0), (2.0, 1)])
def test_a_stream_may_be_cut_off_by_an_edge_that_is_gone_then(run: Run, at: float, num_problems: int) -> None:
    stream_cut_off_by_nobody(run)
    run.deeds.append(Deed("edge_api", "killed", at, 4.0))
    assert len(problems(run)) == num_problems


def lost_row_of_a_whole_answer(run: Run) -> None:
    del run.rows[0]


def lost_row_of_one_who_left(run: Run) -> None:
    del run.rows[1]


def lost_row_that_only_an_engine_knows_of(run: Run) -> None:
    run.evidence.runs.append(ran(LEFT, 2, attempt=2, replica=OTHER))


def lost_row_that_only_an_edge_knows_of(run: Run) -> None:
    run.evidence.clients.append(TheClient("c" * 32, 7, 5, 1010.0))


def doubled_row_of_another_attempt(run: Run) -> None:
    run.rows.append(row(LEFT, 2, "cancelled", attempt=2))


def doubled_row_of_another_run(run: Run) -> None:
    run.rows.append(row(LEFT, 0, "error", run_id="ffffffff"))


def doubled_row_as_reconcile_sees_it(run: Run) -> None:
    run.evidence.rows.append(row(LEFT, 0, "finished", attempt=2, replica=OTHER))


def row_of_nobody(run: Run) -> None:
    run.rows.append(row("d" * 32, 5, "finished"))


def wrong_bill(run: Run) -> None:
    run.rows[0] = row(WHOLE, 6, "finished")


def wrong_count_of_an_engine(run: Run) -> None:
    run.evidence.runs[0] = ran(WHOLE, 4)


def lost_turn(run: Run) -> None:
    del run.turns[0]


def doubled_turn(run: Run) -> None:
    run.turns.append(conversation_record(request_id=LEFT, run_id="ffffffff"))


def rejected_record(run: Run) -> None:
    run.rejected.append("no such outcome")


def record_that_nobody_takes(run: Run) -> None:
    run.waiting = 3


def leaked_seat_of_a_limit(run: Run) -> None:
    run.use["use.key.key_acme"] = AccountState(slots={"edge_api-1": Slot(seats=1)})


def leaked_money_of_a_limit(run: Run) -> None:
    run.use["use.key.key_acme"] = AccountState(slots={"edge_api-1": Slot(held_picos=9)})


def charged_more_than_booked(run: Run) -> None:
    run.use["use.key.key_acme"] = AccountState(spent_picos=1)


def charged_to_nobody(run: Run) -> None:
    run.rows[0] = row(WHOLE, 5, "finished", cost_picos=250)
    run.use.clear()


def leaked_block(run: Run) -> None:
    run.blocks_held = 3


def leaked_seat_in_a_service(run: Run) -> None:
    run.stats["inference_router"] = {"held": 0, "cancellable": 1}


def replica_that_stays_away(run: Run) -> None:
    run.num_ready = 1


def service_that_does_not_answer(run: Run) -> None:
    del run.stats["llm_gateway"]


def silent_stream(run: Run) -> None:
    hears(run, 1, broke="ReadTimeout", seconds=60.0)


def stream_that_stands_still_and_sends_keep_alives(run: Run) -> None:
    hears(run, 1, left=True, seconds=121.0)


def stream_that_the_edge_gave_up(run: Run) -> None:
    hears(run, 1, error={"message": "m", "type": "t", "param": None, "code": "idle_timeout"}, seconds=120.0)


def stream_without_an_end(run: Run) -> None:
    hears(run, 1, text="Ki")


def stream_cut_off_by_nobody(run: Run) -> None:
    hears(run, 1, text="Ki", broke="ReadError")


def stream_that_a_lost_replica_ended(run: Run) -> None:
    hears(run, 1, text="Ki", error={"message": "m", "type": "t", "param": None, "code": "stop_lost"})


def client_at_a_closed_door(run: Run) -> None:
    run.tries[1] = [Asked(LEFT, Heard(status=503), 11.0)]
    del run.rows[1], run.turns[1]


def victim_that_never_came_back(run: Run) -> None:
    run.deeds = [Deed("engine_worker", "killed", 10.5, None)]


def code_that_failed(run: Run) -> None:
    run.log += TRACEBACK


def bus_that_tells_nothing(run: Run) -> None:
    run.evidence = cast("Evidence", CliError("The bus at nats://nowhere does not answer."))


FAULTS: dict[Callable[[Run], None], tuple[str, ...]] = {
    lost_row_of_a_whole_answer: (f"ledger: {WHOLE} came whole and has the rows none",),
    lost_row_of_one_who_left: (f"ledger: {LEFT} had text (left) and has no row",),
    lost_row_that_only_an_engine_knows_of: (f"lost row: {LEFT} attempt 2",),
    lost_row_that_only_an_edge_knows_of: (f"lost row: {'c' * 32} it was answered",),
    doubled_row_of_another_attempt: (f"ledger: {LEFT} (left) is booked twice: the rows 2 cancelled",),
    doubled_row_of_another_run: (f"ledger: {LEFT} (left) is booked twice: the rows 1 cancelled, 1 error",),
    doubled_row_as_reconcile_sees_it: (f"doubled: {LEFT}",),
    row_of_nobody: (f"ledger: {'d' * 32} was never asked and has the rows 1 finished",),
    wrong_bill: (f"ledger: {WHOLE} was told 5 completion_tokens, booked are 6",),
    wrong_count_of_an_engine: (f"tokens: {WHOLE}",),
    lost_turn: (f"books: {WHOLE} (whole) is in its conversation 0 times",),
    doubled_turn: (f"books: {LEFT} (left) is in its conversation 2 times",),
    rejected_record: ("books: a record was rejected: no such outcome",),
    record_that_nobody_takes: ("books: 3 records wait for after_answer",),
    leaked_seat_of_a_limit: ("limits: still held is {'use.key.key_acme': '1 seats, 0 picos'}",),
    leaked_money_of_a_limit: ("limits: still held is {'use.key.key_acme': '0 seats, 9 picos'}",),
    charged_more_than_booked: ("limits: the key key_acme has spent 1 picos, its rows cost 0",),
    charged_to_nobody: ("limits: the key key_acme has spent 0 picos, its rows cost 250",),
    leaked_block: ("rest: not within 0 s: everything at rest",),
    leaked_seat_in_a_service: ("rest: not within 0 s: everything at rest",),
    replica_that_stays_away: ("rest: not within 0 s: all replicas are ready",),
    service_that_does_not_answer: ("rest: not within 0 s: everything at rest",),
    silent_stream: (f"hang: {LEFT} after 60 s (ReadTimeout)",),
    stream_that_stands_still_and_sends_keep_alives: (f"hang: {LEFT} after 121 s",),
    stream_that_the_edge_gave_up: (f"hang: {LEFT} after 120 s",),
    stream_without_an_end: (f"no right end: {LEFT}",),
    stream_cut_off_by_nobody: (f"for no reason: {LEFT}, an answer: cut off ReadError",),
    stream_that_a_lost_replica_ended: (f"for no reason: {LEFT}, an answer: stop_lost 200 after 0.0 s: m",),
    client_at_a_closed_door: (f"never let in: {LEFT}, tried 1 times", f"no right end: {LEFT}"),
    victim_that_never_came_back: ("not whole again: engine_worker killed",),
    code_that_failed: ("traceback 1×: llm_gateway        │ KeyError: 'seat'",),
    bus_that_tells_nothing: ("witnesses: The bus at nats://nowhere does not answer.",),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_seen_and_said_once(run: Run, fault: Callable[[Run], None]) -> None:
    fault(run)
    found = problems(run)
    expected = FAULTS[fault]
    assert len(found) == len(expected), found
    for sentence, beginning in zip(found, expected, strict=True):
        assert sentence.startswith(beginning)


def test_seats_of_an_edge_that_died_are_given_back_when_somebody_asks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, free = AccountState(slots={"edge_api-1": Slot(seats=2)}), AccountState()

    async def use(_: LiveSystem) -> dict[str, AccountState]:
        return {"use.key.key_acme": free if run.asked_for_limits else held}

    monkeypatch.setattr("tests.chaos.verdict._use", use)
    monkeypatch.setattr("tests.chaos.verdict.LIMITS_SECONDS", 60.0)
    monkeypatch.setattr("tests.chaos.verdict.BETWEEN_ASKING_SECONDS", 0.0)
    assert problems(run) == []
    assert run.asked_for_limits == 1
