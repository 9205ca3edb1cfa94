"""A cache hit on its way out: a stream of frames like an engine's, so that the guard filters it too."""

from __future__ import annotations

from collections.abc import Iterator

from baton_common.frame_sender import FrameOutbox, NumberedFrame
from baton_contracts.envelope import Envelope
from baton_contracts.frames import CACHED, Data, End, FinishReason, Usage
from baton_contracts.records import UsageRecord
from baton_llm_gateway.catching_up import piece_size
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.response_cache import CachedAnswer

PIECE_CHARACTERS = 256
"""More in a very long answer: its frames are all sent at once."""


async def send_cached(
    errand: Errand, outbox: FrameOutbox, answer: CachedAnswer, similarity: float | None = None
) -> None:
    """`similarity`: of the question that it answered, where that is another one."""
    stream = errand.open_stream(outbox)
    try:
        await stream.send_all(list(_frames(errand, answer, similarity)))
    finally:
        outbox.ended(stream)


def _frames(errand: Errand, answer: CachedAnswer, similarity: float | None) -> Iterator[NumberedFrame]:
    request_id, gateway = errand.ctx.request_id, errand.ctx.node.instance
    cache = "exact" if similarity is None else "semantic"
    yield errand.prologue(errand.choice.model, CACHED, cache=cache, similarity=similarity)
    for piece in _pieces(answer.reasoning):
        yield Data(request_id=request_id, sender=gateway, seq=0, reasoning=piece)
    for piece in _pieces(answer.text):
        yield Data(request_id=request_id, sender=gateway, seq=0, text=piece)
    if answer.tool_calls:
        yield Data(request_id=request_id, sender=gateway, seq=0, tool_calls=answer.tool_calls)
    yield End(
        request_id=request_id, sender=gateway, seq=0, finish_reason=answer.finish_reason, usage=answer.usage
    )


def _pieces(text: str) -> Iterator[str]:
    size = piece_size(len(text), PIECE_CHARACTERS)
    for start in range(0, len(text), size):
        yield text[start : start + size]


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
