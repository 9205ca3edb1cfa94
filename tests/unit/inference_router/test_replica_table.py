from __future__ import annotations

from typing import Any

import pytest

from baton_common.bus import BusMessage
from baton_common.clock import Clock
from baton_contracts.handoffs import Ack
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.scoring import Candidate

A = "engine_worker-0000000a"
B = "engine_worker-0000000b"


class Time:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.clock = Clock(wall=lambda: self.now, monotonic=lambda: self.now)


def beat(replica: str = A, sent_at: float = 1.0, **fields: Any) -> ReplicaHeartbeat:
    values: dict[str, Any] = {"model": "m", "state": "ready", "max_running": 4, "max_waiting": 4}
    return ReplicaHeartbeat(replica=replica, sent_at=sent_at, **(values | fields))


def held(**counts: int) -> Ack:
    return Ack(verdict="held", instance=A, **counts)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def table(time: Time) -> ReplicaTable:
    return ReplicaTable(time.clock, stale_seconds=2.0)


def load(table: ReplicaTable, replica: str = A) -> int:
    return next(each.load for each in table.candidates("m") if each.replica == replica)


def test_only_ready_replicas_of_the_model_are_candidates(table: ReplicaTable) -> None:
    table.on_heartbeat(beat(A))
    table.on_heartbeat(beat("engine_worker-1", state="starting", stage="load"))
    table.on_heartbeat(beat("engine_worker-2", state="draining"))
    table.on_heartbeat(beat("engine_worker-3", model="other"))

    assert [each.replica for each in table.candidates("m")] == [A]
    assert {each.state for each in table.of_model("m")} == {"ready", "starting", "draining"}


def test_a_silent_replica_is_forgotten_after_two_seconds(table: ReplicaTable, time: Time) -> None:
    table.on_heartbeat(beat())
    time.now += 2.0
    assert len(table.candidates("m")) == 1
    time.now += 0.1
    assert table.candidates("m") == []
    assert table.of_model("m") == []


def test_gone_is_gone_at_once(table: ReplicaTable) -> None:
    table.on_heartbeat(beat())
    table.on_heartbeat(beat(sent_at=2.0, state="gone"))
    assert table.candidates("m") == []


def test_nobody_there_is_dead_until_its_next_heartbeat(table: ReplicaTable) -> None:
    table.on_heartbeat(beat())
    table.mark_dead(A)
    assert table.candidates("m") == []
    table.on_heartbeat(beat(sent_at=2.0))
    assert len(table.candidates("m")) == 1


def test_one_that_did_not_answer_cools_down_though_it_still_beats(table: ReplicaTable, time: Time) -> None:
    table.on_heartbeat(beat())
    table.cool_down(A, 5.0)
    time.now += 1.0
    table.on_heartbeat(beat(sent_at=2.0))
    assert table.candidates("m") == []
    time.now += 4.0
    table.on_heartbeat(beat(sent_at=6.0))
    assert len(table.candidates("m")) == 1


def test_one_that_was_frozen_is_asked_again_once_it_beats(table: ReplicaTable, time: Time) -> None:
    table.on_heartbeat(beat())
    table.cool_down(A, 5.0)
    time.now += 1.6
    table.on_heartbeat(beat(sent_at=2.6))
    assert [each.replica for each in table.candidates("m")] == [A]


def test_a_heartbeat_that_was_overtaken_changes_nothing(table: ReplicaTable) -> None:
    table.on_heartbeat(beat(sent_at=5.0, num_running=3))
    table.on_heartbeat(beat(sent_at=4.0, num_running=1))
    assert load(table) == 3


def test_a_seat_counts_until_the_first_heartbeat_after_the_acceptance(table: ReplicaTable) -> None:
    table.on_heartbeat(beat(num_running=1))
    seat = table.reserve(A)
    assert load(table) == 2
    table.on_heartbeat(beat(sent_at=2.0, num_running=1))
    assert load(table) == 2  # not accepted yet: the heartbeat can't contain it
    seat.accept(held())
    assert load(table) == 2
    table.on_heartbeat(beat(sent_at=3.0, num_running=2))
    assert load(table) == 2
    assert table.num_reserved == 0


def test_an_acceptance_with_the_queue_length_replaces_the_seat(table: ReplicaTable) -> None:
    table.on_heartbeat(beat())
    table.reserve(A).accept(held(waiting=1, running=3))
    assert load(table) == 4
    assert table.num_reserved == 0


def test_a_refusal_gives_the_seat_back_and_tells_the_queue_length(table: ReplicaTable) -> None:
    table.on_heartbeat(beat())
    table.reserve(A).refuse(Ack(verdict="refused", instance=A, waiting=4, running=4))
    (full,) = table.candidates("m")
    assert (full.load, full.full) == (8, True)
    table.on_heartbeat(beat(sent_at=2.0, num_running=4))
    assert load(table) == 4


def test_a_failed_dispatch_gives_its_seat_back_and_an_accepted_one_keeps_it(table: ReplicaTable) -> None:
    table.on_heartbeat(beat())
    failed, accepted = table.reserve(A), table.reserve(A)
    accepted.accept(held())
    failed.release()
    accepted.release()
    failed.release()
    assert load(table) == 1


def test_the_seats_of_a_replica_that_went_do_not_touch_the_one_that_came(table: ReplicaTable) -> None:
    table.on_heartbeat(beat(A))
    seats = [table.reserve(A) for _ in range(3)]
    table.on_heartbeat(beat(A, sent_at=2.0, state="gone"))
    table.on_heartbeat(beat(B, num_running=1))
    for seat in seats:
        seat.release()
        seat.refuse(held(waiting=0, running=0))
    assert load(table, B) == 1
    table.on_heartbeat(beat(A, sent_at=3.0))
    assert load(table, A) == 0


def test_a_damaged_heartbeat_is_ignored(table: ReplicaTable) -> None:
    table.on_message(BusMessage("baton.v1.replica.m.x", b"{}"))
    assert table.of_model("m") == []


def test_prompts_that_were_told_or_sent_are_worked_off_at_the_measured_speed(
    table: ReplicaTable, time: Time
) -> None:
    """Between two heartbeats: 1,000 told, 500 sent, 2,000 a second."""

    def tokens() -> int:
        return next(each.waiting_tokens for each in table.candidates("m"))

    table.on_heartbeat(beat(waiting_tokens=600, prefill_tokens=400, prefill_tokens_per_second=2000.0))
    seat = table.reserve(A, 500)
    assert tokens() == 1500
    seat.accept(held(waiting=1, running=1))
    time.now += 0.25
    assert tokens() == 1000
    time.now += 1.0
    assert tokens() == 0
    table.on_heartbeat(beat(sent_at=2.0, waiting_tokens=70))
    assert tokens() == 70


def test_a_change_is_seen_at_once_also_by_one_that_was_idle(table: ReplicaTable) -> None:
    table.on_heartbeat(beat())
    assert (load(table), load(table)) == (0, 0)
    seat = table.reserve(A)
    assert load(table) == 1
    seat.release()
    assert load(table) == 0
    table.reserve(A).refuse(held(waiting=2, running=4))
    assert load(table) == 6
    table.on_heartbeat(beat(sent_at=2.0, num_running=3))
    assert load(table) == 3


def only(table: ReplicaTable) -> Candidate:
    (candidate,) = table.candidates("m")
    return candidate


def test_what_is_sent_late_after_a_heartbeat_is_work_from_then_on(table: ReplicaTable, time: Time) -> None:
    """In the 0.2 s before, nothing of it was there to be computed."""
    table.on_heartbeat(beat(prefill_tokens_per_second=2000.0))
    time.now += 0.2
    table.reserve(A, 300)
    assert only(table).waiting_tokens == 300
    time.now += 0.1
    table.reserve(A, 50)
    assert only(table).waiting_tokens == 150
    time.now += 0.05
    assert only(table).waiting_tokens == 50


def test_a_refused_prompt_is_no_work_and_given_back_once(table: ReplicaTable) -> None:
    table.on_heartbeat(beat(waiting_tokens=70))
    seat = table.reserve(A, 300)
    assert only(table).waiting_tokens == 370
    seat.refuse(Ack(verdict="refused", instance=A, waiting=0, running=1))
    seat.release()
    assert only(table).waiting_tokens == 70


def test_a_heartbeat_says_anew_what_is_left_beside_what_is_not_accepted_yet(table: ReplicaTable) -> None:
    table.on_heartbeat(beat())
    table.reserve(A, 300).accept(held(waiting=0, running=1))
    table.reserve(A, 40)
    table.on_heartbeat(beat(sent_at=2.0, num_running=1, prefill_tokens=200))
    assert only(table).waiting_tokens == 240


def test_requests_end_between_heartbeats_at_the_rate_of_late(table: ReplicaTable, time: Time) -> None:
    """A score goes by it; bounds and seats go by what was told."""
    table.on_heartbeat(beat(num_running=2, requests_per_second=5.0))
    assert only(table).ended == 0.0
    time.now += 0.2
    assert only(table).ended == pytest.approx(1.0)
    assert only(table).load == 2
    time.now += 1.0
    assert only(table).ended == 2  # never more than there were
    table.reserve(A).accept(held(waiting=0, running=3))
    assert only(table).ended == 0.0
    time.now += 0.1
    assert only(table).ended == pytest.approx(0.5)


def ramped(time: Time) -> ReplicaTable:
    return ReplicaTable(time.clock, stale_seconds=60.0, ramp_seconds=10.0)


def test_a_newcomer_grows_from_when_it_was_warm_by_its_own_clock(time: Time) -> None:
    """Its clock is a year ahead; it is first heard four seconds after, by a router that has just started."""
    table, year = ramped(time), 31_536_000.0
    table.on_heartbeat(beat(sent_at=year + 4.0, counting_since=year))
    assert only(table).ramp == pytest.approx(0.4)
    time.now += 3.0
    table.on_heartbeat(beat(sent_at=year + 5.0, counting_since=year))  # a step of its clock changes nothing
    assert only(table).ramp == pytest.approx(0.7)
    time.now += 3.0
    assert only(table).ramp == 1.0


def test_one_that_was_there_before_is_no_newcomer_however_late_it_is_heard(time: Time) -> None:
    table = ramped(time)
    time.now += 100.0
    table.on_heartbeat(beat(sent_at=5000.0, counting_since=4000.0))
    assert only(table).ramp == 1.0


def test_one_that_is_loading_is_new_only_once_it_is_ready(time: Time) -> None:
    table = ramped(time)
    table.on_heartbeat(beat(sent_at=1.0, state="starting"))
    time.now += 30.0
    table.on_heartbeat(beat(sent_at=31.0, counting_since=31.0))
    assert only(table).ramp == 0.0


def test_a_time_that_is_still_to_come_is_now(time: Time) -> None:
    table = ramped(time)
    table.on_heartbeat(beat(sent_at=1.0, counting_since=9000.0))
    time.now += 5.0
    assert only(table).ramp == pytest.approx(0.5)
