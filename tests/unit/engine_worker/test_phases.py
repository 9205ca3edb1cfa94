from __future__ import annotations

from itertools import pairwise

import pytest

from baton_common.clock import Clock
from baton_common.tracing import SpanRecorder
from baton_contracts.spans import Span
from baton_engine import Preemption, PrefillChunk, RequestDelta, Timings, Usage
from baton_engine_worker.phases import record_phases


def phases(timings: Timings, usage: Usage, steps: int = 0) -> dict[str, Span]:
    return {span.name: span for span in recorded(timings, usage, steps)}


def recorded(timings: Timings, usage: Usage, steps: int = 0) -> list[Span]:
    spans = SpanRecorder("engine_worker", "engine_worker-1", 7, Clock())
    last = RequestDelta("r", finish_reason="stop", usage=usage, timings=timings)
    record_phases(spans, last, taken_at=10.0, first_sent_at=11.6, ended_at=12.6, num_steps=steps)
    return spans.spans


def test_the_phases_touch_from_acceptance_to_end() -> None:
    timings = Timings(10.1, 10.3, 11.5, 12.5, (PrefillChunk(10.3, 0.6, 512), PrefillChunk(10.9, 0.6, 88)), 1)
    seen = phases(timings, Usage(600, 32, 11), steps=12)

    chain = [seen[name] for name in ("admit", "queue", "prefill", "decode", "flush")]
    assert [span.start for span in chain] == [10.0, 10.1, 10.3, 11.5, 12.5]
    for before, after in pairwise(chain):
        assert before.start + before.duration == pytest.approx(after.start)
    assert chain[-1].start + chain[-1].duration == pytest.approx(12.6)
    assert seen["prefill"].attributes == {"prompt_tokens": 600, "cached_tokens": 32, "chunks": 2}
    assert seen["decode"].attributes == {"tokens": 11, "tpot_ms": 100.0, "steps": 12, "preemptions": 1}
    assert (seen["first_token"].start, seen["first_token"].duration) == (11.5, pytest.approx(0.1))
    assert {span.stop for span in seen.values()} == {7}


def test_chunks_lie_in_their_prefill_and_a_preemption_where_it_was() -> None:
    chunks = (PrefillChunk(10.3, 0.6, 512), PrefillChunk(10.9, 0.6, 88))
    gaps = (Preemption(11.7, 12.0), Preemption(12.2))
    spans = recorded(Timings(10.1, 10.3, 11.5, 12.5, chunks, 2, gaps), Usage(600, 32, 11))
    prefill = next(span for span in spans if span.name == "prefill")
    inner = [span for span in spans if span.name == "prefill_chunk"]
    assert [(span.start, span.attributes["tokens"]) for span in inner] == [(10.3, 512), (10.9, 88)]
    assert {span.parent_span_id for span in inner} == {prefill.span_id}
    away = [span for span in spans if span.name == "preempted"]
    assert [span.start for span in away] == [11.7, 12.2]
    assert [span.duration for span in away] == [pytest.approx(0.3), pytest.approx(0.3)]


def test_a_prompt_of_a_thousand_chunks_does_not_make_a_thousand_spans() -> None:
    chunks = tuple(PrefillChunk(10.3 + i, 1.0, 16) for i in range(1000))
    spans = recorded(Timings(10.1, 10.3, 1011, 1012, chunks), Usage(16_000, 0, 2))
    assert sum(span.name == "prefill_chunk" for span in spans) == 32
    assert next(span for span in spans if span.name == "prefill").attributes["chunks"] == 1000


def test_one_cancelled_while_it_waited_has_only_waited() -> None:
    seen = phases(Timings(10.1, None, None, 12.5), Usage(600, 0, 0))
    assert set(seen) == {"admit", "queue", "flush"}
    assert seen["queue"].duration == pytest.approx(2.4)


def test_one_cancelled_while_it_prefilled_has_no_decode() -> None:
    seen = phases(Timings(10.1, 10.3, None, 12.5), Usage(600, 0, 0))
    assert set(seen) == {"admit", "queue", "prefill", "flush"}
    assert seen["prefill"].duration == pytest.approx(2.2)


def test_a_single_token_has_no_time_between_tokens() -> None:
    seen = phases(Timings(10.1, 10.3, 11.5, 11.5), Usage(6, 0, 1), steps=1)
    assert seen["decode"].attributes["tpot_ms"] == 0.0
