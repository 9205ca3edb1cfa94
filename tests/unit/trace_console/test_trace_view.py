"""Traces put together: merged, summed up, and searched for time that nobody accounts for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pytest

from baton_contracts.spans import Span
from baton_trace_console import coverage
from baton_trace_console.coverage import Interval, covered_seconds, intervals_by_stop, largest_gap
from baton_trace_console.trace_view import merge, summary, trace_object
from tests.support.traces import make_batch, make_span, whole_relay

RID = "ab" * 16
T0 = 1_800_000_000.0


def explained(spans: Sequence[Span]) -> list[Interval]:
    return list(chain.from_iterable(intervals_by_stop(spans).values()))


@pytest.mark.parametrize(
    ("intervals", "gap"),
    [
        ([], 0.0),
        ([(0, 5)], 0.0),
        ([(0, 1), (1, 2)], 0.0),
        ([(0, 1), (3, 4)], 2.0),
        ([(3, 4), (0, 1)], 2.0),
        ([(0, 10), (2, 3), (11, 12)], 1.0),
        ([(0, 1), (2, 3), (6, 7), (8, 9)], 3.0),
        ([(0, 4), (1, 2), (3, 6)], 0.0),
    ],
)
def test_the_largest_gap_is_the_longest_time_without_any_span(
    intervals: list[tuple[float, float]], gap: float
) -> None:
    assert largest_gap(intervals) == gap


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [([], 0), ([(0, 2), (1, 3)], 3), ([(0, 1), (5, 6)], 2), ([(0, 9), (1, 2)], 9), ([(2, 2)], 0)],
)
def test_time_that_is_told_of_twice_counts_once(intervals: list[tuple[float, float]], seconds: float) -> None:
    assert covered_seconds(intervals) == seconds


def test_a_stop_that_waits_for_a_later_one_does_not_explain_its_time() -> None:
    """The gateway holds the request from 0 to 10; the engine tells of 2–4 and 7–9: 3 s are missing."""
    gateway = make_span(5, 0, 10, span_id="5" * 16)
    engine = [make_span(7, 2, 4, parent_span_id="5" * 16), make_span(7, 7, 9, parent_span_id="5" * 16)]
    assert largest_gap(explained([gateway, *engine])) == 3.0


def test_what_a_stop_does_before_and_after_the_later_ones_is_explained() -> None:
    gateway = make_span(5, 0, 10, span_id="5" * 16)
    own_work = make_span(5, 1, 2, parent_span_id="5" * 16)
    engine = make_span(7, 2, 9, parent_span_id="5" * 16)
    assert sorted(explained([gateway, own_work, engine])) == [(0, 2), (1, 2), (2, 9), (9, 10)]


def test_what_was_handed_on_from_within_a_span_counts_too() -> None:
    spans = [
        make_span(5, 0, 10, span_id="a" * 16),
        make_span(5, 1, 9, "attempt", span_id="b" * 16, parent_span_id="a" * 16),
        make_span(7, 2, 4, parent_span_id="b" * 16),
        make_span(7, 6, 8, parent_span_id="b" * 16),
    ]
    assert largest_gap(explained(spans)) == 2.0


def test_a_part_of_a_stop_that_spans_the_wait_does_not_hide_it() -> None:
    """The gateway's attempt is its own span beside what the gateway handed on."""
    spans = [
        make_span(5, 0, 10, span_id="a" * 16),
        make_span(5, 1, 9, "attempt", parent_span_id="a" * 16),
        make_span(7, 2, 4, parent_span_id="a" * 16),
        make_span(7, 7, 8, parent_span_id="a" * 16),
    ]
    assert largest_gap(explained(spans)) == 3.0
    assert covered_seconds(intervals_by_stop(spans)[5]) == 4.0  # 0 to 2 and 8 to 10


def test_however_many_parts_a_stop_has_what_is_below_it_is_gathered_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway's 500 parts of 1 s each hand on at once and get it back after half a second."""
    gathered: list[Span] = []
    below = coverage._Family._below  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(
        coverage._Family,  # pyright: ignore[reportPrivateUsage]
        "_below",
        lambda family, own: gathered.append(own) or below(family, own),
    )
    gateway = make_span(5, 0, 500, span_id="a" * 16)
    parts = [make_span(5, at, at + 1, "part", parent_span_id="a" * 16) for at in range(500)]
    engine = [make_span(7, at, at + 0.5, parent_span_id="a" * 16) for at in range(500)]
    by_stop = intervals_by_stop([gateway, *parts, *engine])
    assert covered_seconds(by_stop[5]) == covered_seconds(by_stop[7]) == 250
    assert [own for own in gathered if own.stop == 5] == [gateway]


def test_parents_in_a_ring_do_not_hang_the_search() -> None:
    ring = [
        make_span(5, 0, 1, span_id="a" * 16, parent_span_id="b" * 16),
        make_span(6, 1, 2, span_id="b" * 16, parent_span_id="a" * 16),
    ]
    assert largest_gap(explained(ring)) == 0.0


def test_a_span_that_was_sent_twice_is_shown_once() -> None:
    span = make_span(3, T0, T0 + 1)
    batches = [make_batch(RID, span), make_batch(RID, span), make_batch(RID, make_span(4, T0, T0 + 1))]
    assert [found.stop for found in merge(batches, "acme")] == [3, 4]


def test_spans_of_another_tenant_with_the_same_request_id_are_not_merged() -> None:
    batches = [make_batch(RID, make_span(3, T0, T0 + 1), tenant_id="rival")]
    assert merge(batches, "acme") == []


def test_spans_are_sorted_by_start_then_stop() -> None:
    spans = [make_span(5, T0 + 1, T0 + 2), make_span(4, T0 + 1, T0 + 3), make_span(9, T0, T0 + 1)]
    assert [span.stop for span in merge([make_batch(RID, *spans)], "acme")] == [9, 4, 5]


def test_a_whole_trace_has_the_shape_that_clients_rely_on() -> None:
    trace = trace_object(RID, whole_relay(T0), now=T0 + 60)
    assert trace["request_id"] == RID
    assert trace["summary"] == {
        "status": "ok",
        "started_at": T0 + 0.01,
        "total_ms": pytest.approx(90, abs=0.01),  # stops 1–9, 10 ms each; stop 10 comes after the answer
        "ttft_ms": 71.5,
        "tpot_ms": 4.25,
        "model": "smollm2-135m",
        "replica": "engine_worker-00000001",
        "prompt_tokens": 42,
        "completion_tokens": 7,
        "cost_usd": None,
        "finish_reason": "stop",
        "cache": None,
        "error": None,
        "error_stop": None,
        "stops": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        "stop_ms": {str(stop): pytest.approx(10, abs=0.01) for stop in range(1, 11)},
        "unexplained_gap_ms": pytest.approx(0, abs=0.001),
    }
    assert trace["spans"][3] == {
        "stop": 4,
        "stop_name": "input guardrails",
        "service": "input_guardrails",
        "instance": "input_guardrails-00000001",
        "name": "handle",
        "start_ms": pytest.approx(30, abs=0.01),
        "duration_ms": pytest.approx(10, abs=0.01),
        "status": "ok",
        "span_id": "0000000000000004",
        "parent_span_id": None,
        "attributes": {},
    }
    assert trace["gaps"] == []


def test_an_answer_from_the_cache_is_told_as_such() -> None:
    spans = whole_relay(T0)
    spans[4] = spans[4].model_copy(update={"attributes": {"cache": "hit", "cache_layer": "semantic"}})
    del spans[5:7]
    assert trace_object(RID, spans, now=T0 + 60)["summary"]["cache"] == "semantic"


def test_a_trace_tells_where_its_gaps_are() -> None:
    """Of 10 ms between stops 3 and 4, and of half a millisecond between 5 and 6 only the first."""
    spans = [
        make_span(stop, T0 + start, T0 + end)
        for stop, start, end in [(3, 0, 0.01), (4, 0.02, 0.03), (5, 0.03, 0.04), (6, 0.0405, 0.05)]
    ]
    trace = trace_object(RID, spans, now=T0)
    assert trace["gaps"] == [{"start_ms": pytest.approx(10), "duration_ms": pytest.approx(10, abs=0.01)}]
    assert trace["summary"]["unexplained_gap_ms"] == pytest.approx(10, abs=0.01)


def test_of_two_attempts_the_last_one_is_summed_up() -> None:
    spans = whole_relay(T0)
    lost = make_span(
        7, T0 + 0.065, T0 + 0.066, attributes={"completion_tokens": 1}, instance="engine_worker-lost"
    )
    found = summary(merge([make_batch(RID, lost, *spans)], "acme"), now=T0 + 1)
    assert (found["completion_tokens"], found["replica"]) == (7, "engine_worker-00000001")


def up_to(stop: int, **of_edge: object) -> list[Span]:
    spans = [span for span in whole_relay(T0) if span.stop <= stop]
    return [span.model_copy(update=of_edge) if span.service == "edge_api" else span for span in spans]


@pytest.mark.parametrize(
    ("spans", "age", "status"),
    [
        (up_to(10), 60, "ok"),
        (up_to(7), 1, "running"),
        (up_to(7), 400, "incomplete"),
        (up_to(9), 1, "running"),
        (up_to(9), 60, "incomplete"),
        ([span for span in up_to(9) if span.stop not in (6, 7)], 1, "running"),
        ([span for span in up_to(9, status="error") if span.stop < 7 or span.stop == 9], 1, "error"),
        (up_to(10, status="error"), 60, "error"),
        (up_to(10, status="cancelled"), 60, "cancelled"),
        (up_to(2, status="error"), 1, "error"),
        (up_to(4)[:2] + up_to(4, status="error")[2:], 1, "running"),
    ],
    ids=[
        "all ten", "under way", "broke off", "books due", "books overdue",
        "cache hit, books due", "no seat", "failed", "cancelled",
        "refused at the edge", "the edge has not said its word yet",
    ],
)  # fmt: skip
def test_the_status_tells_how_it_went_or_that_it_goes_on(spans: list[Span], age: float, status: str) -> None:
    assert summary(spans, now=T0 + age)["status"] == status


def test_what_no_stop_has_told_is_null() -> None:
    found = summary([make_span(2, T0, T0 + 0.001, status="error")], now=T0 + 1)
    assert [found[key] for key in ("ttft_ms", "tpot_ms", "model", "replica", "finish_reason")] == [None] * 5


def test_the_cost_is_that_of_all_attempts() -> None:
    spans = [
        make_span(10, T0, T0 + 1, "ledger", attributes={"cost_picos": 960_000}),
        make_span(10, T0, T0 + 1, "ledger", attributes={"cost_picos": 40_000}),
    ]
    assert summary(spans, T0 + 2)["cost_usd"] == "0.000001"
