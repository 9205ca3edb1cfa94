"""Which models have a replica, from heartbeats. Knows names and states, not loads: those are the router's."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from baton_common.bus import BusMessage
from baton_common.clock import Clock
from baton_contracts.base import MalformedMessage
from baton_contracts.heartbeats import REPLICA_STALE_AFTER_SECONDS, ReplicaHeartbeat

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Seen:
    model: str
    ready: bool
    at: float


class ServedModels:
    def __init__(self, clock: Clock, stale_seconds: float = REPLICA_STALE_AFTER_SECONDS) -> None:
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._replicas: dict[str, _Seen] = {}
        self._ever: set[str] = set()

    def __len__(self) -> int:
        """Replicas that are remembered."""
        return len(self._replicas)

    def on_message(self, message: BusMessage) -> None:
        try:
            self.on_heartbeat(ReplicaHeartbeat.decode(message.payload))
        except MalformedMessage as error:
            log.warning("heartbeat ignored: %s", error)

    def on_heartbeat(self, heartbeat: ReplicaHeartbeat) -> None:
        self._ever.add(heartbeat.model)
        if heartbeat.state == "gone":
            self._replicas.pop(heartbeat.replica, None)
            return
        if heartbeat.replica not in self._replicas:
            self._forget_silent()  # one that was killed never says that it is gone
        seen = _Seen(heartbeat.model, heartbeat.state == "ready", self._clock.monotonic())
        self._replicas[heartbeat.replica] = seen

    def _forget_silent(self) -> None:
        oldest = self._oldest
        self._replicas = {replica: seen for replica, seen in self._replicas.items() if seen.at >= oldest}

    @property
    def _oldest(self) -> float:
        return self._clock.monotonic() - self._stale_seconds

    def ready(self, model: str) -> bool:
        """True if a request for `model` would find a replica now, as far as heartbeats tell."""
        oldest = self._oldest
        return any(
            seen.model == model and seen.ready and seen.at >= oldest for seen in self._replicas.values()
        )

    def ever_seen(self, model: str) -> bool:
        """A model whose replicas are all gone is out of order, not unknown."""
        return model in self._ever
