"""What one request is in this process: its question, which model it is for, whether it was given up, and
where its answer goes. Owned by the actor's task and shared by all that work on it; holds no connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from baton_common.context import RequestContext
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_contracts import subjects
from baton_contracts.frames import Prologue
from baton_contracts.handoffs import GatewayHandoff
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.model_choice import Choice


@dataclass(frozen=True)
class Errand:
    ctx: RequestContext
    handoff: GatewayHandoff
    choice: Choice
    cancellation: Cancellation
    guard: str
    """Who filters the answer; this process itself where nobody does."""
    way: str
    """The subject of the answer's frames: the guard's, or straight to the edge."""

    @classmethod
    def of(
        cls,
        ctx: RequestContext,
        handoff: GatewayHandoff,
        choice: Choice,
        cancellation: Cancellation,
        guard: str | None,
    ) -> Errand:
        ourselves = ctx.node.instance
        if guard is None:
            way = subjects.reply(ctx.envelope.edge, ctx.request_id)
        else:
            way = subjects.frames(ourselves, guard, ctx.request_id)
        return cls(ctx, handoff, choice, cancellation, guard or ourselves, way)

    def open_stream(self, outbox: FrameOutbox, attempt: int | None = None) -> FrameStream:
        """Of frames that this process numbers itself."""
        envelope = self.ctx.envelope
        return outbox.open(self.way, envelope.request_id, attempt or envelope.attempt, envelope.run_id)

    def prologue(
        self,
        model: str,
        replica: str,
        *,
        cache: Literal["none", "exact", "semantic"] = "none",
        similarity: float | None = None,
    ) -> Prologue:
        """The first frame of such a stream."""
        ourselves = self.ctx.node.instance
        return Prologue(
            request_id=self.ctx.request_id,
            sender=ourselves,
            seq=0,
            model=model,
            replica=replica,
            gateway=ourselves,
            guard=self.guard,
            cache=cache,
            cache_similarity=similarity,
            num_answers=self.handoff.chat.sampling.n,
            citations=self.handoff.prompt.citations,
        )
