"""R7, the router's part: after 10,000 requests that end anywhere (refused, absent, cancelled at once or
later, under heartbeats at any moment) no seat is left and the counts are those of the engines.

The same with the real step loop, in fewer requests: test_R7_random_cancels.
"""

from __future__ import annotations

import random

from baton_contracts.handoffs import Ack
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_inference_router.replicas import ReplicaTable, Seat
from baton_inference_router.scoring import Asked, ranked
from tests.support.relay import HandClock

COUNT = 10_000
NAMES = [f"engine_worker-{number}" for number in range(4)]


class Engines:
    """What the replicas themselves know."""

    def __init__(self, time: HandClock, table: ReplicaTable) -> None:
        self.time, self.table = time, table
        self.held = dict.fromkeys(NAMES, 0)

    def beat(self, name: str) -> None:
        self.time.move(0.001)
        self.table.on_heartbeat(
            ReplicaHeartbeat(
                replica=name,
                model="m",
                state="ready",
                sent_at=self.time.now,
                num_running=min(8, self.held[name]),
                num_waiting=max(0, self.held[name] - 8),
                max_running=8,
                max_waiting=8,
            )
        )

    def counts(self, name: str) -> dict[str, int]:
        return {"running": min(8, self.held[name]), "waiting": max(0, self.held[name] - 8)}


def test_no_seat_is_left_and_the_counts_are_the_engines() -> None:
    chance, time = random.Random(5), HandClock()  # noqa: S311  # the same in each run
    table = ReplicaTable(time.clock, stale_seconds=1000.0)
    engines = Engines(time, table)
    for name in NAMES:
        engines.beat(name)
    dispatched: list[Seat] = []
    running: list[str] = []
    num_asked = num_cancelled = 0
    while num_asked < COUNT or dispatched or running:
        match chance.choice(["ask", "answer", "cancel", "beat"]):
            case "ask" if num_asked < COUNT and (order := ranked(table.candidates("m"), Asked(100))):
                num_asked += 1
                dispatched.append(table.reserve(order[0].replica, 100))
            case "ask" if num_asked < COUNT:
                num_asked += 1  # 503: nobody has room
            case "answer" if dispatched:
                seat = dispatched.pop(chance.randrange(len(dispatched)))
                name, verdict = seat.replica, chance.random()
                if verdict < 0.2:
                    seat.refuse(Ack(verdict="refused", instance=name, **engines.counts(name)))
                elif verdict < 0.9:
                    engines.held[name] += 1
                    running.append(name)
                    told = engines.counts(name) if chance.random() < 0.7 else {}
                    seat.accept(Ack(verdict="held", instance=name, **told))
                seat.release()  # of the rest nobody answered
            case "cancel" if running:
                num_cancelled += 1
                engines.held[running.pop(chance.randrange(len(running)))] -= 1
            case "beat":
                engines.beat(chance.choice(NAMES))
            case _:
                pass
        assert table.num_reserved <= num_asked

    for name in NAMES:
        engines.beat(name)
    assert num_cancelled > COUNT / 4
    assert table.num_reserved == 0
    assert engines.held == dict.fromkeys(NAMES, 0)
    assert [(each.load, each.waiting_tokens) for each in table.candidates("m")] == [(0, 0)] * 4
