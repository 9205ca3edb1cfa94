"""A cache hit on its way out: a stream of frames like an engine's, so that the guard filters it too."""

from __future__ import annotations

from collections.abc import Iterator

from baton_common.context import RequestContext
from baton_common.frame_sender import FrameOutbox
from baton_contracts.envelope import Envelope
from baton_contracts.frames import CACHED, Data, End, FinishReason, Prologue, Usage
from baton_contracts.records import UsageRecord
from baton_llm_gateway.response_cache import CachedAnswer
from baton_llm_gateway.telling import way_out

PIECE_CHARACTERS = 256


async def send_cached(
    ctx: RequestContext,
    outbox: FrameOutbox,
    answer: CachedAnswer,
    *,
    model: str,
    guard: str | None,
    citations: tuple[str, ...],
    similarity: float | None = None,
) -> None:
    """`similarity`: of the question that it answered, where that is another one."""
    request_id, gateway = ctx.request_id, ctx.node.instance
    stream = outbox.open(way_out(ctx, guard), request_id, ctx.envelope.attempt, ctx.envelope.run_id)
    try:
        await stream.send(
            Prologue(
                request_id=request_id,
                sender=gateway,
                seq=0,
                model=model,
                replica=CACHED,
                gateway=gateway,
                guard=guard or gateway,
                cache="exact" if similarity is None else "semantic",
                cache_similarity=similarity,
                citations=citations,
            )
        )
        for piece in _pieces(answer.reasoning):
            await stream.send(Data(request_id=request_id, sender=gateway, seq=0, reasoning=piece))
        for piece in _pieces(answer.text):
            await stream.send(Data(request_id=request_id, sender=gateway, seq=0, text=piece))
        if answer.tool_calls:
            calls = answer.tool_calls
            await stream.send(Data(request_id=request_id, sender=gateway, seq=0, tool_calls=calls))
        await stream.send(
            End(
                request_id=request_id,
                sender=gateway,
                seq=0,
                finish_reason=answer.finish_reason,
                usage=answer.usage,
            )
        )
    finally:
        outbox.ended(stream)


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE_CHARACTERS):
        yield text[start : start + PIECE_CHARACTERS]


def row_without_call(
    envelope: Envelope,
    model: str,
    replica: str,
    usage: Usage,
    finish_reason: FinishReason | None,
    *,
    started_at: float,
    ended_at: float,
) -> UsageRecord:
    """The row says what the answer would have cost, and by its outcome that it cost nothing. `replica`:
    CACHED or SHARED."""
    return UsageRecord(
        request_id=envelope.request_id,
        run_id=envelope.run_id,
        attempt=envelope.attempt,
        tenant=envelope.tenant,
        model=model,
        replica=replica,
        usage=usage,
        outcome="cache_hit",
        finish_reason=finish_reason,
        started_at=started_at,
        ended_at=ended_at,
    )
