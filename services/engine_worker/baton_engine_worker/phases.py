"""What the engine did with a request, as spans: queue, prefill, first_token, decode. From its own timings.

The phases touch: admit | queue | prefill | decode | flush leave no time between acceptance and end unnamed.
Chunks of a prompt that took several steps, and the times without blocks (preempted), lie inside them.
"""

from __future__ import annotations

from baton_common.tracing import SpanRecorder, new_span_id
from baton_contracts.spans import AttributeValue
from baton_engine import RequestDelta, Timings, Usage

MAX_INNER_SPANS = 32
"""Of each kind: a batch of spans stays a small message. The counts stand in the attributes of the phases."""


def record_phases(
    spans: SpanRecorder,
    last: RequestDelta,
    *,
    taken_at: float,
    first_sent_at: float | None,
    ended_at: float,
    num_steps: int,
) -> None:
    """Unix seconds: when the handler began, when the first tokens' frame and the last frame had been sent."""
    seen, counted = last.timings, last.usage
    if seen is None or counted is None:
        return
    spans.add("admit", taken_at, seen.queued_at)
    spans.add("queue", seen.queued_at, seen.scheduled_at or seen.finished_at)
    if seen.scheduled_at is not None:
        _record_prefill(spans, seen, counted)
    if seen.first_token_at is not None:
        spans.add("first_token", seen.first_token_at, first_sent_at or seen.first_token_at)
        _record_decode(spans, seen, seen.first_token_at, counted, num_steps)
    for gap in seen.preemptions[:MAX_INNER_SPANS]:
        spans.add("preempted", gap.at, gap.resumed_at or seen.finished_at)
    spans.add("flush", seen.finished_at, ended_at)


def _record_prefill(spans: SpanRecorder, seen: Timings, counted: Usage) -> None:
    assert seen.scheduled_at is not None
    span_id = new_span_id()
    if len(seen.prefill_chunks) > 1:
        for chunk in seen.prefill_chunks[:MAX_INNER_SPANS]:
            ended_at = chunk.started_at + chunk.seconds
            attributes: dict[str, AttributeValue] = {"tokens": chunk.num_tokens}
            spans.add("prefill_chunk", chunk.started_at, ended_at, parent=span_id, attributes=attributes)
    spans.add(
        "prefill",
        seen.scheduled_at,
        seen.first_token_at or seen.finished_at,
        attributes={
            "prompt_tokens": counted.prompt_tokens,
            "cached_tokens": counted.cached_tokens,
            "chunks": len(seen.prefill_chunks),
        },
        span_id=span_id,
    )


def _record_decode(
    spans: SpanRecorder, seen: Timings, first_token_at: float, counted: Usage, num_steps: int
) -> None:
    seconds = seen.finished_at - first_token_at
    after_first = counted.completion_tokens - 1
    spans.add(
        "decode",
        first_token_at,
        seen.finished_at,
        attributes={
            "tokens": counted.completion_tokens,
            "tpot_ms": round(1000 * seconds / after_first, 3) if after_first > 0 else 0.0,
            "steps": num_steps,
            "preemptions": seen.num_preemptions,
        },
    )
