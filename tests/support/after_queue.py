"""The work queue AFTER in memory: a bus that answers pulls as the server does, in its parts that matter here.

A pull brings what is there, up to its batch; if there is nothing it waits for the first message, unless its
time is zero; a status says that it is over. Nothing is delivered again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from typing import Any

from baton_common.bus import BusMessage, OnMessage, Subscription
from baton_common.memory_bus import MemoryBus

NEXT = "$JS.API.CONSUMER.MSG.NEXT.AFTER.after_answer"
STORED_AT_NANOSECONDS = 1_999_750_000_000


def ack_subject(number: int) -> str:
    return f"$JS.ACK.AFTER.after_answer.1.{number}.{number}.{STORED_AT_NANOSECONDS}.0"


class QueueBus(MemoryBus):
    def __init__(self) -> None:
        super().__init__()
        self.pulls: list[dict[str, Any]] = []
        self.is_missing = False
        """The stream: the server ends each pull at once."""
        self._queued: deque[BusMessage] = deque()
        self._numbers = itertools.count(1)
        self._waiting: tuple[int, str] | None = None
        """Batch and inbox of the pull that waits for the first message."""
        self._deliver_pulled: OnMessage | None = None

    def store(self, subject: str, payload: bytes) -> None:
        self._queued.append(BusMessage(subject, payload, ack_subject(next(self._numbers))))
        if self._waiting:
            pull, self._waiting = self._waiting, None
            self._answer(*pull)

    @property
    def num_queued(self) -> int:
        return len(self._queued)

    async def subscribe(self, subject: str, on_message: OnMessage, *, queue: str = "") -> Subscription:
        if ".pull." in subject:
            self._deliver_pulled = on_message
        return await super().subscribe(subject, on_message, queue=queue)

    async def publish(self, subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        await super().publish(subject, payload, reply=reply, within=within)
        if subject == NEXT:
            self._on_pull(json.loads(payload), reply)

    def _on_pull(self, body: dict[str, Any], inbox: str) -> None:
        self.pulls.append(body)
        self._waiting = None
        if self._queued or self.is_missing or not body["expires"]:
            self._answer(body["batch"], inbox)
        else:
            self._waiting = (body["batch"], inbox)

    def _answer(self, batch: int, inbox: str) -> None:
        assert self._deliver_pulled
        call_soon = asyncio.get_running_loop().call_soon
        for _ in range(batch):
            if not self._queued:
                call_soon(self._deliver_pulled, BusMessage(inbox, b""))
                return
            call_soon(self._deliver_pulled, self._queued.popleft())
