"""What an actor and a responder have in common: one subscription, a limit of work at once, a bounded queue.

Owns whether messages are taken. Knows neither what they are nor what a refusal looks like.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from baton_common.bus import BusMessage, Subscription

if TYPE_CHECKING:
    from baton_common.node import Node


@dataclass(frozen=True)
class InboxLimits:
    concurrency: int = 64
    """Requests handled at once."""
    mailbox: int = 256
    """Requests held but waiting for their turn; beyond that the answer is that we are busy, at once."""


class Intake(ABC):
    """`_on_message` is called for each message that comes before `stop_taking`, and a few after it."""

    def __init__(self, node: Node, subject: str, limits: InboxLimits, queue: str | None) -> None:
        """`queue`: the group whose members share the messages; by default all processes of the service."""
        self._node = node
        self._subject = subject
        self._queue = node.service if queue is None else queue
        self._most_held = limits.concurrency + limits.mailbox
        self._turns = asyncio.Semaphore(limits.concurrency)
        self._subscription: Subscription | None = None
        self._taking = False

    @property
    @abstractmethod
    def num_held(self) -> int: ...

    @abstractmethod
    def _on_message(self, message: BusMessage) -> None: ...

    @property
    def _is_full(self) -> bool:
        return self.num_held >= self._most_held

    async def start(self) -> None:
        self._taking = True
        self._subscription = await self._node.bus.subscribe(
            self._subject, self._on_message, queue=self._queue
        )

    async def stop_taking(self) -> None:
        """From here on others of the group get new messages; what is held goes on."""
        if self._subscription:
            await self._subscription.unsubscribe()
        self._taking = False
