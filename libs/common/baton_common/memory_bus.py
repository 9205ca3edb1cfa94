"""A bus inside one event loop, for tests: the semantics of core NATS without a server.

Wildcards, queue groups (one member each, in turn), no-responders at once, serial delivery, durable subjects
that remember what was stored.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from baton_common.bus import BusMessage, OnMessage, Subscription
from baton_common.errors import BusTimeout, BusUnavailable, NoResponders


def subject_matches(pattern: str, subject: str) -> bool:
    """NATS wildcards: `*` is one token, a last `>` one or more."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given) > index
        if index >= len(given) or token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


@dataclass(eq=False)
class _MemorySubscription:
    bus: MemoryBus
    pattern: str
    on_message: OnMessage
    queue: str

    async def unsubscribe(self) -> None:
        if self in self.bus.subscriptions:
            self.bus.subscriptions.remove(self)


class MemoryBus:
    def __init__(self, *, online: bool = True, back_for_long: bool = True) -> None:
        self.subscriptions: list[_MemorySubscription] = []
        self.stored: dict[str, dict[str, bytes]] = {}
        """Durable messages: subject → message id → payload."""
        self.back_for_long = back_for_long
        self._online = online
        self._turns: dict[tuple[str, str], int] = defaultdict(int)
        self._inboxes = itertools.count()
        self._when_back: list[Callable[[], object]] = []

    @property
    def online(self) -> bool:
        return self._online

    @online.setter
    def online(self, online: bool) -> None:
        was_lost, self._online = not self._online, online
        if was_lost and online:
            for call in self._when_back:
                call()

    @property
    def connected(self) -> bool:
        return self.online

    @property
    def is_settled(self) -> bool:
        return self.online and self.back_for_long

    def when_back(self, call: Callable[[], object]) -> None:
        self._when_back.append(call)

    def _receivers(self, subject: str) -> list[_MemorySubscription]:
        groups: dict[tuple[str, str], list[_MemorySubscription]] = defaultdict(list)
        plain: list[_MemorySubscription] = []
        for subscription in self.subscriptions:
            if subject_matches(subscription.pattern, subject):
                if subscription.queue:
                    groups[subscription.pattern, subscription.queue].append(subscription)
                else:
                    plain.append(subscription)
        for group, members in groups.items():
            plain.append(members[self._turns[group] % len(members)])
            self._turns[group] += 1
        return plain

    def _deliver(self, message: BusMessage) -> int:
        receivers = self._receivers(message.subject)
        loop = asyncio.get_running_loop()
        for receiver in receivers:
            loop.call_soon(receiver.on_message, message)
        return len(receivers)

    async def publish(self, subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        if not self.online:
            raise BusUnavailable(subject)
        self._deliver(BusMessage(subject, payload, reply))

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def settle(message: BusMessage) -> None:
            if not answer.done():
                answer.set_result(message.payload)

        if not self.online:
            raise BusUnavailable(subject)
        subscription, inbox = await self._open_inbox(settle)
        try:
            if not self._deliver(BusMessage(subject, payload, inbox)):
                raise NoResponders(subject)
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise BusTimeout(subject, timeout) from None
        finally:
            await subscription.unsubscribe()

    async def request_many(self, subject: str, payload: bytes, *, timeout: float, enough: int) -> list[bytes]:
        answers: list[bytes] = []
        done = asyncio.Event()

        def collect(message: BusMessage) -> None:
            answers.append(message.payload)
            if len(answers) >= enough:
                done.set()

        if not self.online:
            raise BusUnavailable(subject)
        subscription, inbox = await self._open_inbox(collect)
        try:
            if self._deliver(BusMessage(subject, payload, inbox)):
                async with asyncio.timeout(timeout):
                    await done.wait()
        except TimeoutError:
            return answers
        finally:
            await subscription.unsubscribe()
        return answers

    async def _open_inbox(self, on_message: OnMessage) -> tuple[Subscription, str]:
        inbox = f"_INBOX.{next(self._inboxes)}"
        return await self.subscribe(inbox, on_message), inbox

    async def subscribe(self, subject: str, on_message: OnMessage, *, queue: str = "") -> Subscription:
        subscription = _MemorySubscription(self, subject, on_message, queue)
        self.subscriptions.append(subscription)
        return subscription

    async def publish_durable(
        self, subject: str, payload: bytes, *, message_id: str, timeout: float = 5
    ) -> None:
        if not self.online:
            raise BusUnavailable(subject)
        messages = self.stored.setdefault(subject, {})
        if message_id not in messages:
            messages[message_id] = payload
            self._deliver(BusMessage(subject, payload))

    async def close(self) -> None:
        self.subscriptions.clear()
        self.online = False
