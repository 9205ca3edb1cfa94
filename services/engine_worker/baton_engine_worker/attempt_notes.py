"""What stays of an attempt when it is over: a ledger row in reserve, its trace, a measured prefill.

Owns what is noted where. What the row says is ended_attempt's, what the phases are is phases'.
"""

from __future__ import annotations

from baton_engine import RequestDelta
from baton_engine_worker.attempt import Attempt
from baton_engine_worker.ended_attempt import record_of
from baton_engine_worker.heartbeat import Heartbeat
from baton_engine_worker.phases import record_phases

MEASURED_CHUNK_TOKENS = 32


def remember_end(attempt: Attempt) -> None:
    """Its ledger row, should the gateway be lost, or at once if it is. What is nobody's has none."""
    if attempt.causes.is_nobodys:
        return
    ctx, gateway, recent_ends = attempt.ctx, attempt.handoff.gateway, attempt.parts.recent_ends
    record = record_of(
        ctx.envelope,
        attempt.answers,
        attempt.causes,
        model=attempt.handoff.work.model,
        replica=ctx.node.instance,
        started_at=attempt.taken_at,
        ended_at=ctx.node.clock.wall(),
    )
    if attempt.causes.gateway_lost:
        recent_ends.store_now(record)
    else:
        recent_ends.note(gateway, record)


def trace(attempt: Attempt, last: RequestDelta, *, first_sent_at: float | None, num_steps: int) -> None:
    """`last`: the delta that ended the request; `first_sent_at`: Unix time of the first frame with tokens."""
    ctx, engine, answers = attempt.ctx, attempt.parts.engine, attempt.answers
    _note_prefill(attempt.parts.heartbeat, last)
    usage = answers.usage()
    ctx.attributes["completion_tokens"] = usage.completion_tokens
    if any(attempt.resumed):
        ctx.attributes["resumed_tokens"] = sum(attempt.resumed)
    ctx.attributes["cached_tokens"] = usage.cached_tokens
    ctx.attributes["finish_reason"] = last.finish_reason or "error"
    ctx.attributes["blocks_freed"] = answers.blocks_freed()
    if engine.state == "ready":
        ctx.attributes["kv_usage"] = round(engine.stats().kv_usage, 4)
    record_phases(
        ctx.spans,
        last,
        taken_at=attempt.taken_at,
        first_sent_at=first_sent_at,
        ended_at=ctx.node.clock.wall(),
        num_steps=num_steps,
    )


def _note_prefill(heartbeat: Heartbeat, last: RequestDelta) -> None:
    """Short chunks ride along in steps of others: their time says nothing of a prompt's speed."""
    for chunk in last.timings.prefill_chunks if last.timings else ():
        if chunk.num_tokens >= MEASURED_CHUNK_TOKENS:
            heartbeat.note_prefill(chunk.num_tokens, chunk.seconds)
