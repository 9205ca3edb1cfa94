"""Discovery over `$SRV`, the NATS micro protocol: PING, INFO and STATS, for all, by name, by instance.

So `nats micro ls` and any dashboard that speaks it see Baton's services. Written here because nats-py's own
micro service unsubscribes under a running handler when it stops.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.tasks import spawn
from baton_contracts import CONTRACT_VERSION

_TYPE = "io.nats.micro.v1.{verb}_response"


class Discovery:
    def __init__(self, bus: Bus, service: str, instance: str, stats: Callable[[], dict[str, Any]]) -> None:
        self._bus = bus
        self._service = service
        self._instance = instance
        self._stats = stats
        self._started = datetime.now(UTC).isoformat()
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        for verb in ("PING", "INFO", "STATS"):
            for suffix in ("", f".{self._service}", f".{self._service}.{self._instance}"):
                subscription = await self._bus.subscribe(f"$SRV.{verb}{suffix}", self._answer_to(verb))
                self._subscriptions.append(subscription)

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.unsubscribe()

    def _answer_to(self, verb: str) -> Callable[[BusMessage], None]:
        def on_message(message: BusMessage) -> None:
            if message.reply:
                spawn(self._bus.publish(message.reply, json.dumps(self._body(verb)).encode()))

        return on_message

    def _body(self, verb: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type": _TYPE.format(verb=verb.lower()),
            "name": self._service,
            "id": self._instance,
            "version": f"{CONTRACT_VERSION}.0",
            "metadata": {"contract": CONTRACT_VERSION},
        }
        if verb == "INFO":
            body |= {"description": f"Baton {self._service}", "endpoints": []}
        if verb == "STATS":
            body |= {"started": self._started, "endpoints": [{"name": self._service, "data": self._stats()}]}
        return body
