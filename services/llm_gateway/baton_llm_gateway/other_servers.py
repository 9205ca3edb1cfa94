"""Attempts at other servers: a call gets its stream, is woken when its audience leaves, and is learned from.

Owns the stream while a call runs. The call itself, and what its failures mean, are providers'; what follows
an attempt is the itinerary's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from baton_common.errors import RequestFailed
from baton_common.frame_sender import FrameOutbox
from baton_common.routes import Target
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.audience import Audience
from baton_llm_gateway.errand import Errand
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


@dataclass(frozen=True)
class OtherServers:
    errand: Errand
    audience: Audience
    telling: Telling
    rows: RunRows
    providers: Providers

    async def call(self, attempt: Attempt, target: Target) -> None:
        """The attempt is over afterwards."""
        if self.audience.is_gone():
            attempt.cancel()
            return
        providers, cancellation = self.providers, self.errand.cancellation
        stream = self.errand.open_stream(providers.outbox, attempt.number)
        call = ProviderCall(
            providers.connections,
            target,
            self.errand.handoff.chat,
            self.errand.handoff.prompt,
            attempt,
            stream,
            self.errand.prologue(attempt.model, target.name),
            self.audience.all_are_gone,
        )
        self.audience.wake = call.wake
        cancellation.holds_blocks = False
        providers.health.tried(target)
        try:
            await call.run()
        except RequestFailed as failed:
            attempt.fail(failed.error)
        except asyncio.CancelledError:
            if not attempt.over:
                attempt.fail(too_late())
                await self.telling.guard(attempt)
            raise
        finally:
            self.audience.wake = None
            cancellation.holds_blocks = True
            providers.outbox.ended(stream)
            if attempt.replica:
                self.rows.note_accepted(attempt)
            providers.health.learn(target, call.failure, answered=attempt.outcome == "finished")
