"""R8: a replica flaps while busy: counts never go under zero, and the old incarnation's seats die with it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from baton_common.clock import Clock
from baton_contracts.handoffs import Ack
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_inference_router.replicas import ReplicaTable, Seat

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["beat", "gone", "dead", "reserve", "accept", "count", "refuse", "release"]),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(EVENTS)
def test_any_order_of_events_keeps_the_counts_true(events: list[tuple[str, int]]) -> None:
    table = ReplicaTable(Clock(wall=lambda: 0.0, monotonic=lambda: 0.0), 2.0)
    incarnations = [0, 0, 0, 0]
    pending: list[Seat] = []
    sent_at = 0.0

    def name(replica: int) -> str:
        return f"engine_worker-{replica}-{incarnations[replica]}"

    def beat(replica: int, state: str = "ready", load: int = 0) -> None:
        nonlocal sent_at
        sent_at += 1
        table.on_heartbeat(
            ReplicaHeartbeat.model_validate(
                {
                    "replica": name(replica),
                    "model": "m",
                    "state": state,
                    "sent_at": sent_at,
                    "num_running": load,
                }
            )
        )

    for event, replica in events:
        known = [each.replica for each in table.candidates("m")]
        if event == "beat":
            beat(replica, load=replica)
        elif event == "gone":
            beat(replica, "gone")
            incarnations[replica] += 1
        elif event == "dead":
            table.mark_dead(name(replica))
        elif event == "reserve" and name(replica) in known:
            pending.append(table.reserve(name(replica)))
        elif pending:
            seat = pending.pop(replica % len(pending))
            counts = {"waiting": replica, "running": replica}
            if event == "accept":
                seat.accept(Ack(verdict="held", instance=seat.replica))
            elif event == "count":
                seat.accept(Ack(verdict="held", instance=seat.replica, **counts))
            elif event == "refuse":
                seat.refuse(Ack(verdict="refused", instance=seat.replica, **counts))
            seat.release()
        for each in table.candidates("m"):
            assert min(each.running, each.waiting, each.reserved) >= 0

    for seat in pending:
        seat.release()
    for replica in range(4):
        beat(replica, load=replica)
    assert table.num_reserved == 0
    loads = {each.replica: each.load for each in table.candidates("m")}
    assert loads == {name(replica): replica for replica in range(4)}
