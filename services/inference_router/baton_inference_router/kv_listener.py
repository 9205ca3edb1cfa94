"""The index's ears: KV events and heartbeats in, questions out when something is missing.

Owns how often a replica is asked. What a gap is, the index says.
"""

from __future__ import annotations

import logging

from baton_common.bus import BusMessage, Subscription
from baton_common.errors import BusError
from baton_common.node import Node
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.kv_events import KvAsk, KvAskReply, KvEvents
from baton_inference_router.prefix_index import PrefixIndex

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 0.3
"""A replica tells all once a second at most; asked a little oftener, it does so as soon as it may."""
ANSWER_SECONDS = 1.0


class KvListener:
    def __init__(self, node: Node, index: PrefixIndex) -> None:
        self._node = node
        self._index = index
        self._asked: dict[str, float] = {}
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        self._subscription = await self._node.bus.subscribe(subjects.KV_ALL, self.on_message)

    async def stop(self) -> None:
        if self._subscription:
            await self._subscription.unsubscribe()

    def on_message(self, message: BusMessage) -> None:
        try:
            events = KvEvents.decode(message.payload)
            if self._index.told(events):
                self._ask(events.replica)
        except (MalformedMessage, ValueError) as error:
            log.warning("KV events ignored: %s", error)  # its number is missing now: the next one shows it

    def on_heartbeat(self, beat: ReplicaHeartbeat) -> None:
        if self._index.heard(beat):
            self._ask(beat.replica)
        elif beat.state == "gone":
            self._asked.pop(beat.replica, None)

    def forget(self, replica: str) -> None:
        self._asked.pop(replica, None)
        self._index.forget(replica)

    def _ask(self, replica: str) -> None:
        now = self._node.clock.monotonic()
        if now - self._asked.get(replica, float("-inf")) >= ASK_AGAIN_SECONDS:
            self._asked[replica] = now
            spawn(self._send_ask(replica))

    async def _send_ask(self, replica: str) -> None:
        ask = KvAsk(asker=self._node.instance)
        try:
            raw = await self._node.bus.request(subjects.kv_ask(replica), ask.encode(), timeout=ANSWER_SECONDS)
            reply = KvAskReply.decode(raw)
        except (BusError, MalformedMessage) as error:
            log.debug("%s was asked for its KV blocks: %s", replica, error)
            return
        if reply.error:
            log.debug("%s tells no KV blocks: %s", replica, reply.error.message)
