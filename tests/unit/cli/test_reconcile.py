"""What the witnesses of a request say, and what is reported where they differ."""

from __future__ import annotations

from typing import Any

from baton_cli.reconcile.differences import Difference, differences, lasting
from baton_cli.reconcile.evidence import Evidence, newest
from baton_contracts.frames import Usage
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.spans import Span, SpanBatch
from tests.support.after_records import usage_record

RID = "ab" * 16
ONE, TWO = "engine_worker-1", "engine_worker-2"


def row(
    attempt: int = 1, replica: str = ONE, outcome: str = "finished", prompt: int = 7, said: int = 5
) -> Any:
    usage = Usage(prompt_tokens=prompt, completion_tokens=said)
    return usage_record(request_id=RID, attempt=attempt, replica=replica, outcome=outcome, usage=usage)


def span(service: Any, stop: int, instance: str, **attributes: Any) -> Span:
    return Span(
        span_id="00f067aa0ba902b7",
        stop=stop,
        service=service,
        instance=instance,
        name="handle",
        start=1000.0,
        duration=1.0,
        attributes=attributes,
    )


def ran(attempt: int = 1, replica: str = ONE, prompt: int = 7, said: int = 5, **more: Any) -> Span:
    counted = {"attempt": attempt, "prompt_tokens": prompt, "completion_tokens": said}
    return span("engine_worker", 7, replica, **(counted | more))


def told(prompt: int = 7, said: int = 5, **more: Any) -> Span:
    return span("edge_api", 9, "edge_api-1", prompt_tokens=prompt, completion_tokens=said, **more)


def beat(replica: str = ONE, tokens: int = 5, **changes: Any) -> ReplicaHeartbeat:
    made = ReplicaHeartbeat(
        replica=replica,
        model="m",
        state="ready",
        sent_at=2000.0,
        counting_since=1.0,
        generation_tokens_total=tokens,
    )
    return made.model_copy(update=changes)


def kinds(rows: list[Any], spans: list[Span], beats: list[ReplicaHeartbeat] | None = None) -> list[str]:
    found = Evidence(rows=rows, replicas=beats or [])
    found.add_spans(SpanBatch(request_id=RID, tenant_id="acme", spans=tuple(spans)))
    assert found.tenants == {"acme"}
    seen = differences(found, since=900.0)
    assert all(one.request_id == RID for one in seen if one.kind != "counter")
    return [one.kind for one in seen]


def test_where_all_say_the_same_there_is_nothing() -> None:
    assert kinds([row()], [ran(), told()], [beat()]) == []


def test_a_migrated_answer_is_one_bill() -> None:
    rows = [row(outcome="migrated", prompt=0, said=3), row(2, TWO, said=2)]
    spans = [ran(said=4), ran(2, TWO, said=5, resumed_tokens=3), told()]
    assert kinds(rows, spans, [beat(tokens=4), beat(TWO, tokens=2)]) == []
    assert kinds([row(outcome="migrated", prompt=7, said=3), rows[1]], spans) == ["bill"]
    assert kinds([row(outcome="migrated", prompt=0, said=5), rows[1]], spans) == ["tokens", "bill"]


def test_a_replica_that_was_killed_leaves_no_trace_and_that_is_no_difference() -> None:
    rows = [row(outcome="migrated", prompt=0, said=3), row(2, TWO, said=2)]
    spans = [ran(2, TWO, said=5, resumed_tokens=3), told()]
    assert kinds(rows, spans, [beat(TWO, tokens=2)]) == []
    assert kinds(rows, spans, [beat(TWO, tokens=2), beat(ONE, tokens=0)]) == ["unknown attempt"]


def test_a_lost_row_is_named() -> None:
    assert kinds([], [ran()]) == ["lost row"]
    assert kinds([], [told()]) == ["lost row"]
    assert kinds([row()], [ran(), ran(2, TWO), told()]) == ["lost row"]


def test_a_replica_that_took_it_when_it_had_been_given_up_has_no_row_and_that_is_no_difference() -> None:
    later = row(2, TWO)  # from 1000.0 on; the first one ended at 1001.0
    assert kinds([later], [ran(1, said=3), ran(2, TWO), told()]) == []
    too_late = later.model_copy(update={"started_at": 1001.5})
    assert kinds([too_late], [ran(1, said=3), ran(2, TWO), told()]) == ["lost row"]


def test_a_replica_that_took_what_its_gateway_had_given_up_has_no_row_and_that_is_no_difference() -> None:
    def tried(**attributes: Any) -> Span:
        return span("llm_gateway", 5, "llm_gateway-1", **attributes).model_copy(update={"name": "attempt"})

    assert kinds([], [ran(said=0), tried(attempt=1, replica="none", outcome="error")]) == []
    assert kinds([], [ran(said=0), tried(attempt=1, replica=ONE, outcome="error")]) == ["lost row"]
    assert kinds([], [ran(2, said=0), tried(attempt=1, replica="none", outcome="error")]) == ["lost row"]
    assert kinds([], [ran(), told(), tried(attempt=1, replica="none")]) == ["lost row"]


def test_what_was_said_after_nobody_waited_any_more_is_on_no_bill() -> None:
    left = row(outcome="cancelled", said=4)  # ended at 1000.5, the engine at 1001.0
    assert kinds([left], [ran()]) == []
    assert kinds([left.model_copy(update={"ended_at": 1001.5})], [ran()]) == ["tokens"]
    assert kinds([row(outcome="cancelled", said=6)], [ran()]) == ["tokens"]


def test_a_count_that_its_gateway_never_heard_is_on_no_bill() -> None:
    left = row(outcome="cancelled", said=4).model_copy(update={"ended_at": 1001.5})
    gateway = span("llm_gateway", 5, "llm_gateway-1", outcome="cancelled")
    heard = span("llm_gateway", 5, "llm_gateway-1", outcome="cancelled", completion_tokens=5)
    assert kinds([left], [ran(), gateway]) == []
    assert kinds([left], [ran(), heard]) == ["tokens"]
    assert kinds([left.model_copy(update={"outcome": "finished"})], [ran(), gateway]) == ["tokens"]
    more = Usage(prompt_tokens=7, completion_tokens=6)
    assert kinds([left.model_copy(update={"usage": more})], [ran(), gateway]) == ["tokens"]


def test_two_rows_that_end_one_run() -> None:
    assert kinds([row(), row(2, TWO)], [ran(), ran(2, TWO)]) == ["doubled"]


def test_figures_that_differ() -> None:
    assert kinds([row(said=6)], [ran()]) == ["tokens"]
    assert kinds([row(prompt=8)], [ran()]) == ["tokens"]
    assert kinds([row()], [ran(), told(said=6)]) == ["bill"]


def test_a_counter_is_compared_only_of_a_replica_at_rest() -> None:
    assert kinds([row()], [ran()], [beat(tokens=9)]) == ["counter"]
    assert kinds([row()], [ran()], [beat(tokens=9, num_running=1)]) == []


def test_what_a_replica_did_around_its_heartbeat_may_be_counted_or_not() -> None:
    """Its run of five tokens ended at 1001: it lies before, within the second after, or later than that."""
    for sent_at, counted, same in [
        *((1001.0, 5, True), (1001.0, 0, False)),
        *((1000.5, 5, True), (1000.5, 0, True), (1000.5, 6, False)),
        *((999.0, 0, True), (999.0, 5, False)),
    ]:
        seen = kinds([row()], [ran(), told()], [beat(tokens=counted, sent_at=sent_at)])
        assert (seen == []) is same, (sent_at, counted)


def test_what_was_on_its_way_at_the_first_look_is_no_difference() -> None:
    late = Difference("lost row", RID, "attempt 1")
    lost = Difference("lost row", "cd" * 16, "attempt 1")
    new = Difference("bill", RID, "its client was told 7 + 5")
    one, two = (Difference("counter", "", "counted", replica) for replica in (ONE, TWO))
    assert lasting([late, lost, one], [lost, new, two]) == [lost]


def test_a_batch_that_was_stored_twice_counts_once() -> None:
    found = Evidence(rows=[row()], replicas=[beat()])
    for _ in range(2):
        found.add_spans(SpanBatch(request_id=RID, tenant_id="acme", spans=(ran(), told())))
    assert (len(found.runs), len(found.clients)) == (1, 1)
    assert differences(found, since=900.0) == []


def test_an_answer_to_several_requests_is_the_bill_of_all() -> None:
    other = "cd" * 16
    second = row(prompt=3, said=2).model_copy(update={"request_id": other})
    both = told(prompt=10, said=7, other_request_ids=(other,))
    assert kinds([row(), second], [both]) == []
    assert kinds([row()], [both]) == ["lost row"]
    assert kinds([row(), second.model_copy(update={"usage": Usage()})], [both]) == ["bill"]


def test_a_cache_hit_has_no_engine() -> None:
    assert kinds([row(replica="cache", outcome="cache_hit")], [told()], [beat(tokens=0)]) == []


def test_what_lies_on_the_border_of_the_time_looked_at_is_left_out() -> None:
    found = Evidence()
    found.add_spans(SpanBatch(request_id=RID, tenant_id="acme", spans=(ran(), told())))
    assert differences(found, since=1000.5) == []
    assert [one.kind for one in differences(found, since=999.0)] == ["lost row", "lost row"]


def test_the_last_word_of_each_replica_counts() -> None:
    beats = [beat(tokens=2, sent_at=2.0), beat(tokens=1, sent_at=1.0), beat(TWO, sent_at=1.0)]
    gone = beat(TWO, state="gone", sent_at=3.0)
    assert [one.generation_tokens_total for one in newest([*beats, gone])] == [2]
