"""Where one request goes, and where it goes next."""

from __future__ import annotations

from typing import Any

import pytest

from baton_common.catalog import Catalog
from baton_common.clock import Clock
from baton_common.errors import RequestFailed
from baton_common.routes import Route, Target
from baton_contracts.frames import Data
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.itinerary import Itinerary, Leg
from baton_llm_gateway.providers.failures import Failure, broken, refused
from baton_llm_gateway.target_health import TargetHealth

RID = "0123456789abcdef0123456789abcdef"


def far(name: str, **more: Any) -> Target:
    return Target(name, f"https://{name}.test/v1", **more)


class Trip:
    """One request through a catalog of made-up models, on a clock that stands still."""

    def __init__(
        self, *targets: Target, others: tuple[str, ...] = (), draw: float = 0.0, **more: Any
    ) -> None:
        self.now = 100.0
        self.health = TargetHealth(Clock(monotonic=lambda: self.now))
        routes = {"m": Route("m", targets)} | {name: Route(name, (far(name),)) for name in others}
        values: dict[str, Any] = {"max_attempts": 3, "draw": lambda: draw} | more
        self.make = lambda: Itinerary(Catalog({}, {}, routes), self.health, ("m", *others), **values)
        self.itinerary = self.make()

    def failed(self, leg: Leg, failure: Failure, *, is_gone: bool = False, words: int = 0) -> Leg | None:
        self.health.learn(leg.target, failure, answered=False)
        attempt = Attempt(1, leg.model, 0.0, elsewhere=failure.elsewhere, num_pieces=words)
        if words:
            attempt.add(Data(request_id=RID, sender="x", seq=0, text="said"))
        attempt.fail(failure.error)
        return self.itinerary.after(attempt, leg, is_gone=is_gone)


DOWN = broken(far("any"), "is down")


def too_many(seconds: float) -> Failure:
    return refused(far("any"), 429, {"retry-after": str(seconds)}, b"")


@pytest.mark.parametrize(("draw", "name"), [(0.0, "a"), (0.74, "a"), (0.76, "b"), (0.999, "b")])
def test_weights_are_shares(draw: float, name: str) -> None:
    assert (
        Trip(far("a", weight=3), far("b"), far("c", weight=0), draw=draw).itinerary.begin().target.name
        == name
    )


def test_another_target_first_then_the_next_model() -> None:
    trip = Trip(far("a"), far("b"), others=("n",))
    names: list[str] = []
    leg: Leg | None = trip.itinerary.begin()
    while leg:
        names.append(leg.target.name)
        leg = trip.failed(leg, DOWN)
    assert names == ["a", "b", "a", "n", "n", "n"]


def test_pauses_grow_between_tries_and_there_is_none_before_another_model() -> None:
    trip = Trip(far("a"), others=("n",))
    first = trip.itinerary.begin()
    second = trip.failed(first, DOWN)
    assert second
    assert 0.05 <= second.pause <= 0.1
    third = trip.failed(second, DOWN)
    assert third
    assert 0.1 <= third.pause <= 0.2
    last = trip.failed(third, DOWN)
    assert last
    assert (last.model, last.pause) == ("n", 0.0)


@pytest.mark.parametrize("status", [429, 401, 404])
def test_what_is_wrong_with_the_place_is_answered_elsewhere_at_once(status: int) -> None:
    trip = Trip(far("a"), far("b"), others=("n",))
    failure = refused(far("a"), status, {}, b"")
    second = trip.failed(trip.itinerary.begin(), failure)
    assert second
    assert (second.target.name, second.pause) == ("b", 0.0)
    third = trip.failed(second, failure)
    assert third
    assert third.target.name == "n"
    assert trip.failed(third, failure) is None


def test_nowhere_after_content_a_leaving_client_or_the_clients_own_fault() -> None:
    trip = Trip(far("a"), far("b"), others=("n",))
    leg = trip.itinerary.begin()
    assert trip.failed(leg, DOWN, words=1) is None
    assert trip.failed(leg, DOWN, is_gone=True) is None
    assert trip.failed(leg, refused(far("a"), 400, {}, b"")) is None


def test_a_server_that_wants_to_be_left_alone_is_not_waited_for() -> None:
    trip = Trip(far("a"))
    assert trip.failed(trip.itinerary.begin(), refused(far("a"), 503, {"retry-after": "30"}, b"")) is None
    trip = Trip(far("a"))
    again = trip.failed(trip.itinerary.begin(), refused(far("a"), 503, {"retry-after": "2"}, b""))
    assert again
    assert again.pause == 2.0


def test_one_that_has_had_too_much_comes_last_but_is_asked_if_there_is_no_other() -> None:
    trip = Trip(far("a"), far("b"))
    assert trip.failed(trip.itinerary.begin(), too_many(30))
    assert trip.make().begin().target.name == "b"
    trip.now += 31
    assert trip.make().begin().target.name == "a"
    alone = Trip(far("a"))
    alone.failed(alone.itinerary.begin(), too_many(30))
    assert alone.make().begin().target.name == "a"


def test_three_failures_in_a_row_open_it_and_one_probe_closes_it() -> None:
    trip = Trip(far("a", cooldown_seconds=10), max_attempts=1)
    for _ in range(3):
        trip.failed(trip.make().begin(), DOWN)
    with pytest.raises(RequestFailed) as refused_now:
        trip.make().begin()
    error = refused_now.value.error
    assert (error.code, error.retry_after_seconds) == ("no_ready_replica", 10.0)
    trip.now += 10
    trip.make().begin()  # one that was not asked after all finds nothing out
    probe = trip.make().begin()
    trip.health.tried(probe.target)
    with pytest.raises(RequestFailed):  # only one finds out
        trip.make().begin()
    trip.failed(probe, DOWN)
    trip.now += 19.9
    with pytest.raises(RequestFailed):  # twice as long
        trip.make().begin()
    trip.now += 0.1
    trip.health.learn(trip.make().begin().target, None, answered=True)
    trip.make().begin()
    trip.make().begin()


def test_those_that_fail_together_are_one_failure() -> None:
    """A server goes down under fifty requests: that is one opening, not forty-eight."""
    trip = Trip(far("a", cooldown_seconds=10), max_attempts=1)
    legs = [trip.make().begin() for _ in range(50)]
    for leg in legs:
        trip.failed(leg, DOWN)
    trip.now += 10
    assert trip.make().begin()


def test_a_success_between_failures_starts_the_count_anew() -> None:
    trip = Trip(far("a"))
    for _ in range(4):
        trip.failed(trip.make().begin(), DOWN)
        trip.failed(trip.make().begin(), DOWN)
        trip.health.learn(far("a"), None, answered=True)
    assert trip.make().begin()


def test_a_probe_that_says_nothing_lets_the_next_one_try() -> None:
    trip = Trip(far("a", cooldown_seconds=10), max_attempts=1)
    for _ in range(3):
        trip.failed(trip.make().begin(), DOWN)
    trip.now += 10
    left = trip.make().begin()
    trip.health.tried(left.target)
    trip.health.learn(left.target, None, answered=False)  # its client left
    assert trip.make().begin()


def test_without_a_router_only_other_servers_answer() -> None:
    trip = Trip(Target("m/local"), far("a"), without_replicas=True)
    assert trip.itinerary.begin().target.name == "a"
    with pytest.raises(RequestFailed, match="without a router"):
        Trip(Target("m/local"), without_replicas=True).itinerary.begin()
