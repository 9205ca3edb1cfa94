"""Attempts at our own replicas: handed to the router, listened to, taken back if they failed.

Owns which replicas have failed this request, and what the router is handed. What is heard of an attempt is
listening.py's, what follows it the itinerary's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from baton_common.errors import RequestFailed
from baton_contracts import subjects
from baton_contracts.envelope import Envelope
from baton_contracts.handoffs import EngineWork, RouteHandoff
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.audience import Audience
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.last_errors import too_late
from baton_llm_gateway.listening import Listener, replica_lost
from baton_llm_gateway.run_rows import RunRows
from baton_llm_gateway.telling import Telling

ROUTE_ACK_SECONDS = 2.0
"""The router's word comes after a replica's, for which it waits less than this."""


@dataclass(frozen=True)
class OwnReplicas:
    errand: Errand
    audience: Audience
    telling: Telling
    rows: RunRows
    listener: Listener
    _failed: list[str] = field(default_factory=list[str])

    async def call(self, attempt: Attempt) -> None:
        """The attempt is over afterwards."""
        if self.audience.is_cancelled:
            attempt.cancel()
            return
        try:
            replica = await self._accepted_by(attempt)
        except asyncio.CancelledError:
            await self._abandon_unheard(attempt)
            raise
        if replica is None:
            return
        attempt.replica = replica
        self.rows.note_accepted(attempt)
        if self._failed:
            await self.telling.guard_of_successor(attempt)
        if cancel := self.errand.cancellation.cancel:  # it did not reach the replica
            self.telling.cancel_came_early = True
            await self.telling.engine(cancel.reason, attempt.number)
        await self._listen(attempt, replica)
        if (cancel := self.errand.cancellation.cancel) and not attempt.confirmed:
            await self.telling.engine(cancel.reason, attempt.number)  # it may have missed the first one
        if attempt.lost_sight_of_us and await self.audience.client_is_gone():
            attempt.cancel()
        if attempt.error:
            self._failed.append(replica)
            await self.telling.engine("superseded", attempt.number)

    async def _accepted_by(self, attempt: Attempt) -> str | None:
        """None: by nobody, and the attempt has failed."""
        try:
            ack = await self.errand.ctx.hand_on(
                subjects.route(self.errand.ctx.request_id),
                lambda envelope: self._route(envelope, attempt),
                to="inference_router",
                attempt=attempt.number,
                ack_seconds=ROUTE_ACK_SECONDS,
            )
        except RequestFailed as failed:
            if failed.error.replica:
                self._failed.append(failed.error.replica)
            if failed.error.code != "stop_unresponsive":
                attempt.fail(failed.error)
                return None
            if replica := await self.listener.begun_by(attempt):  # the word was lost, not the request
                return replica
            attempt.fail(failed.error)
            # A replica may take it all the same, even later: one that was frozen finds it in its inbox.
            await self.telling.engine("superseded", attempt.number, never_heard=True)
            return None
        return ack.instance

    async def _listen(self, attempt: Attempt, replica: str) -> None:
        unwatch = self.errand.ctx.node.leases.watch(
            replica, lambda lost: self.listener.note(replica_lost(lost), attempt.number)
        )
        try:
            await self.listener.until_over(attempt)
        except asyncio.CancelledError:
            await self._abandon(attempt)
            raise
        finally:
            unwatch()

    async def _abandon_unheard(self, attempt: Attempt) -> None:
        """The same before the router's word came: whoever has begun is known by its frames, and is booked."""
        if replica := self.listener.sender_of(attempt):
            attempt.replica = replica
            self.rows.note_accepted(attempt)
            await self._abandon(attempt)
        else:
            await self.telling.engine("deadline", attempt.number, never_heard=True)

    async def _abandon(self, attempt: Attempt) -> None:
        """The deadline passed, or this process ends: the engine stops, and its count is still wanted."""
        await self.telling.engine("deadline", attempt.number)
        await self.listener.last_word(attempt)
        attempt.fail(too_late())
        await self.telling.guard(attempt)

    def _route(self, envelope: Envelope, attempt: Attempt) -> RouteHandoff:
        handoff, chat = self.errand.handoff, self.errand.handoff.chat
        return RouteHandoff(
            envelope=envelope,
            work=EngineWork(
                model=attempt.model,
                prompt=handoff.prompt,
                sampling=chat.sampling,
                tool_choice=chat.tool_choice,
                priority=chat.priority,
                resume_token_ids=attempt.resumed[0] if attempt.resumed else (),
                resume_others=attempt.resumed[1:],
                cache_salt=_cache_salt(envelope.tenant.tenant_id, chat.cache_salt),
            ),
            gateway=self.errand.ctx.node.instance,
            guard=self.errand.guard,
            avoid_replicas=tuple(self._failed),
        )


def _cache_salt(tenant_id: str, asked: str) -> str:
    """Tenants never share; within one, only those who name the same salt."""
    return f"{tenant_id}\0{asked}" if asked else tenant_id
