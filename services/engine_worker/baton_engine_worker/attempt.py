"""What is at hand for one attempt at a request: what its process shares, what it was asked, what came of it.

Owns the facts and who is who in them. Does nothing: the course of an attempt is work's.
"""

from __future__ import annotations

from dataclasses import dataclass

from baton_common.context import RequestContext
from baton_common.frame_sender import FrameOutbox
from baton_common.recent_ends import RecentEnds
from baton_contracts.handoffs import EngineHandoff
from baton_engine_worker.answer_frames import AnswerFrames
from baton_engine_worker.dialect import Dialect
from baton_engine_worker.ended_attempt import Causes
from baton_engine_worker.engine_face import Engine
from baton_engine_worker.heartbeat import Heartbeat
from baton_engine_worker.prompt_tokens import PromptTokens
from baton_engine_worker.steps import StepBridge


@dataclass(frozen=True)
class WorkerParts:
    """What all requests of this process share."""

    engine: Engine
    outbox: FrameOutbox
    bridge: StepBridge
    heartbeat: Heartbeat
    dialect: Dialect
    tokens: PromptTokens
    recent_ends: RecentEnds
    default_max_tokens: int


@dataclass(frozen=True)
class Attempt:
    parts: WorkerParts
    ctx: RequestContext
    handoff: EngineHandoff
    engine_id: str
    """The engine's name for it: an attempt of its own there."""
    resumed: tuple[int, ...]
    """Tokens that earlier attempts sent, by answer."""
    answers: AnswerFrames
    causes: Causes
    taken_at: float
    """Unix time at which the handler began."""


def attempt_of(parts: WorkerParts, ctx: RequestContext, handoff: EngineHandoff) -> Attempt:
    work, envelope = handoff.work, ctx.envelope
    resumed = tuple(map(len, (work.resume_token_ids, *work.resume_others)))
    return Attempt(
        parts=parts,
        ctx=ctx,
        handoff=handoff,
        engine_id=f"{envelope.request_id}-{envelope.run_id}-{envelope.attempt}",
        resumed=resumed,
        answers=AnswerFrames(
            ctx.request_id, ctx.node.instance, parts.engine.tokenizer, num_resumed=sum(resumed)
        ),
        causes=Causes(),
        taken_at=ctx.node.clock.wall(),
    )
