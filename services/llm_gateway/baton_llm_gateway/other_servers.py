"""Attempts at other servers: a call gets its stream, is woken when its audience leaves, and is learned from.

Owns the stream while a call runs. The call itself, and what its failures mean, are providers'; what follows
an attempt is the itinerary's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_common.routes import Target
from baton_contracts.frames import Prologue
from baton_contracts.handoffs import GatewayHandoff
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.audience import Audience
from baton_llm_gateway.last_errors import too_late
from baton_llm_gateway.providers.call import ProviderCall
from baton_llm_gateway.providers.connections import Connections
from baton_llm_gateway.run_rows import RunRows
from baton_llm_gateway.target_health import TargetHealth
from baton_llm_gateway.telling import Telling


@dataclass(frozen=True)
class Providers:
    """What this process has for calls to other servers."""

    connections: Connections
    health: TargetHealth
    outbox: FrameOutbox


class OtherServers:
    """`way` is the subject of the answer's frames; `guard` who filters them, or this process."""

    def __init__(
        self,
        ctx: RequestContext,
        handoff: GatewayHandoff,
        guard: str,
        way: str,
        providers: Providers,
        audience: Audience,
        telling: Telling,
        rows: RunRows,
    ) -> None:
        self._ctx = ctx
        self._handoff = handoff
        self._guard = guard
        self._way = way
        self._providers = providers
        self._audience = audience
        self._telling = telling
        self._rows = rows

    async def call(self, attempt: Attempt, target: Target) -> None:
        """The attempt is over afterwards."""
        if self._audience.is_gone():
            attempt.cancel()
            return
        outbox, health = self._providers.outbox, self._providers.health
        stream = outbox.open(self._way, self._ctx.request_id, attempt.number, self._ctx.envelope.run_id)
        call = self._prepared(attempt, target, stream)
        self._audience.wake = call.wake
        self._audience.cancellation.holds_blocks = False
        health.tried(target)
        try:
            await call.run()
        except RequestFailed as failed:
            attempt.fail(failed.error)
        except asyncio.CancelledError:
            attempt.fail(too_late())
            await self._telling.guard(attempt)
            raise
        finally:
            self._audience.wake = None
            self._audience.cancellation.holds_blocks = True
            outbox.ended(stream)
            if attempt.replica:
                self._rows.note_accepted(attempt)
            health.learn(target, call.failure, answered=attempt.outcome == "finished")

    def _prepared(self, attempt: Attempt, target: Target, stream: FrameStream) -> ProviderCall:
        handoff, instance = self._handoff, self._ctx.node.instance
        prologue = Prologue(
            request_id=self._ctx.request_id,
            sender=instance,
            seq=0,
            model=attempt.model,
            replica=target.name,
            gateway=instance,
            guard=self._guard,
            num_answers=handoff.chat.sampling.n,
            citations=handoff.prompt.citations,
        )
        return ProviderCall(
            self._providers.connections,
            target,
            handoff.chat,
            handoff.prompt,
            attempt,
            stream,
            prologue,
            self._audience.all_are_gone,
        )
