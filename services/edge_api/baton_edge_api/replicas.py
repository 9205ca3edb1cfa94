"""Which engine replicas there are, as their heartbeats tell: for the list of models, readiness and gauges.

Owns the last heartbeat of each replica and how old it may be. Picks no replica: that is the router's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.catalog import Catalog
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.heartbeats import REPLICA_STALE_AFTER_SECONDS, ReplicaHeartbeat

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Seen:
    heartbeat: ReplicaHeartbeat
    at: float


@dataclass(frozen=True)
class ServedModel:
    name: str
    since: int
    """Unix time in seconds at which this process first saw it."""
    context_length: int | None
    owned_by: str = "baton"
    task: Literal["embed"] | None = None
    """None: it answers chats."""


class ReplicaBoard:
    def __init__(
        self,
        bus: Bus,
        catalog: Catalog,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        stale_after: float = REPLICA_STALE_AFTER_SECONDS,
    ) -> None:
        self._bus = bus
        self._catalog = catalog
        self._monotonic = monotonic
        self._wall = wall
        self._stale_after = stale_after
        self._seen: dict[str, _Seen] = {}
        self._first_seen: dict[str, int] = {}
        self._started = int(wall())
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(subjects.REPLICA_ALL, self._on_message)

    async def stop(self) -> None:
        if self._subscription:
            await self._subscription.unsubscribe()

    def _on_message(self, message: BusMessage) -> None:
        try:
            self.note(ReplicaHeartbeat.decode(message.payload))
        except MalformedMessage as error:
            log.warning("heartbeat ignored: %s", error)

    def note(self, heartbeat: ReplicaHeartbeat) -> None:
        if heartbeat.state == "gone":
            self._seen.pop(heartbeat.replica, None)
            return
        self._seen[heartbeat.replica] = _Seen(heartbeat, self._monotonic())
        self._first_seen.setdefault(heartbeat.model, int(self._wall()))

    def fresh(self) -> list[ReplicaHeartbeat]:
        """Heartbeats that are not too old, in any state; the others are forgotten."""
        oldest = self._monotonic() - self._stale_after
        for name in [name for name, seen in self._seen.items() if seen.at < oldest]:
            del self._seen[name]
        return [seen.heartbeat for _, seen in sorted(self._seen.items())]

    def ready(self) -> list[ReplicaHeartbeat]:
        return [heartbeat for heartbeat in self.fresh() if heartbeat.state == "ready"]

    def knows(self, name: str) -> bool:
        """A model that there is, be it served now or not."""
        return name in self._first_seen or name in self._catalog.models or name in self._catalog.routes

    def models(self) -> list[ServedModel]:
        """What can be asked for now: served models, those of other servers, aliases that stand for one."""
        lengths: dict[str, int] = {}
        for heartbeat in self.ready():
            lengths[heartbeat.model] = max(lengths.get(heartbeat.model, 0), heartbeat.context_length)
        served = [
            ServedModel(name, self._first_seen[name], lengths[name] or None) for name in sorted(lengths)
        ]
        served += self._of_other_servers(lengths)
        there = {model.name for model in served}
        served += [
            ServedModel(alias.name, self._started, None)
            for alias in self._catalog.aliases.values()
            if there & {alias.small, alias.large}
        ]
        return served

    def _of_other_servers(self, served_here: dict[str, int]) -> list[ServedModel]:
        """No heartbeat tells of them: they are taken to be there."""
        return [
            ServedModel(route.name, self._started, route.context_length)
            for route in self._catalog.routes.values()
            if not route.needs_replica and route.name not in served_here
        ]
