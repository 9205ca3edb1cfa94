"""The bus over a real NATS server.

Knows nats-py and its traps: callbacks run serially for a subscription; a flush may overtake a SUB; `request`
while disconnected waits its whole time-out; a server that is too old ignores options silently.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import nats
import nats.errors
import nats.js.errors
from nats.aio.subscription import Subscription as NatsSubscription
from nats.js import JetStreamContext

from baton_common.bus import SETTLE_SECONDS, BusMessage, OnMessage, Subscription
from baton_common.errors import BusError, BusTimeout, BusUnavailable, MessageTooLarge, NoResponders
from baton_common.nats_client import StraightClient

log = logging.getLogger(__name__)

_MIN_API_LEVEL = 2
"""JetStream API level of NATS 2.12: counters and per-key TTL exist from there on."""


@dataclass
class _Back:
    since: float = -math.inf
    """On the monotonic clock: when the connection was last found again. While it is lost: not yet."""
    listeners: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])


class NatsSubscriptionHandle:
    def __init__(self, subscription: NatsSubscription) -> None:
        self._subscription: NatsSubscription | None = subscription

    async def unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            await subscription.unsubscribe()
        except (nats.errors.ConnectionClosedError, nats.errors.BadSubscriptionError):
            log.debug("already unsubscribed")


class NatsBus:
    """One connection. Reconnects for ever; while it is away every call fails at once."""

    def __init__(self, client: StraightClient, closing: asyncio.Event, back: _Back) -> None:
        self._client = client
        self._closing = closing
        self._back = back
        self.jetstream: JetStreamContext = client.jetstream(timeout=5)

    @classmethod
    async def connect(
        cls, url: str, *, name: str, user: str = "", password: str = "", inbox_prefix: str = "_INBOX"
    ) -> NatsBus:
        """Waits until the server is there. Raises BusError if the server is too old for Baton."""
        client = StraightClient()
        first, closing, back = asyncio.Event(), asyncio.Event(), _Back()

        async def on_error(error: Exception) -> None:
            if first.is_set() or not isinstance(error, ConnectionRefusedError):
                log.warning("bus: %s", error or type(error).__name__)

        async def on_disconnect() -> None:
            back.since = math.inf
            if not closing.is_set():
                log.warning("bus: disconnected")

        async def on_reconnect() -> None:
            back.since = time.monotonic()
            log.info("bus: connected again")
            for call in back.listeners:
                call()

        options: dict[str, Any] = {"user": user, "password": password} if user else {}
        await client.connect(
            servers=[url],
            name=name,
            error_cb=on_error,
            disconnected_cb=on_disconnect,
            reconnected_cb=on_reconnect,
            inbox_prefix=inbox_prefix.encode(),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,  # pyright: ignore[reportArgumentType]  # typed int, used as float seconds
            connect_timeout=2,
            ping_interval=1,
            max_outstanding_pings=3,
            pending_size=8 * 1024 * 1024,
            allow_reconnect=True,
            **options,
        )
        first.set()
        bus = cls(client, closing, back)
        bus._check_server()
        return bus

    def _check_server(self) -> None:
        info = cast(dict[str, Any], getattr(self._client, "_server_info", {}))
        if int(info.get("api_lvl", 0)) < _MIN_API_LEVEL:
            raise BusError(
                "connect", f"NATS server {info.get('version', '?')} is too old: 2.12 or newer is needed"
            )

    @property
    def connected(self) -> bool:
        return self._client.is_connected

    @property
    def is_settled(self) -> bool:
        return self._client.is_connected and time.monotonic() - self._back.since > SETTLE_SECONDS

    @property
    def num_reconnects(self) -> int:
        """Grows each time the connection was lost and found again: what was watched must be read anew."""
        return int(self._client.stats["reconnects"])

    def when_back(self, call: Callable[[], object]) -> None:
        self._back.listeners.append(call)

    async def publish(self, subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        if not self._client.is_connected:
            raise BusUnavailable(subject)
        try:
            await self._client.publish_within(within, subject, payload, reply)
        except nats.errors.Error as error:
            raise _refused(subject, error) from error

    async def request(self, subject: str, payload: bytes, *, timeout: float) -> bytes:
        if not self._client.is_connected:
            raise BusUnavailable(subject)
        try:
            return await self._client.ask(subject, payload, timeout=timeout)
        except nats.errors.NoRespondersError:
            raise NoResponders(subject) from None
        except (nats.errors.TimeoutError, TimeoutError):
            raise BusTimeout(subject, timeout) from None
        except nats.errors.Error as error:
            raise _refused(subject, error) from error

    async def request_many(self, subject: str, payload: bytes, *, timeout: float, enough: int) -> list[bytes]:
        answers: list[bytes] = []
        done = asyncio.Event()

        def collect(message: BusMessage) -> None:
            if message.payload:  # an empty one is the server's "no responders"
                answers.append(message.payload)
            if not message.payload or len(answers) >= enough:
                done.set()

        inbox = self._client.new_inbox()
        subscription = await self._subscribe(inbox, collect, queue="")
        try:
            await self.publish(subject, payload, reply=inbox)
            async with asyncio.timeout(timeout):
                await done.wait()
        except TimeoutError:
            log.debug("%s: %d answers within %.1f s", subject, len(answers), timeout)
        finally:
            await subscription.unsubscribe()
        return answers

    async def subscribe(self, subject: str, on_message: OnMessage, *, queue: str = "") -> Subscription:
        subscription = await self._subscribe(subject, on_message, queue=queue)
        try:
            # nats-py may write PING before SUB: two round trips make sure that the server has the SUB.
            await self._client.flush()
            await self._client.flush()
        except nats.errors.Error as error:
            await subscription.unsubscribe()
            raise _refused(subject, error) from error
        return subscription

    async def _subscribe(self, subject: str, on_message: OnMessage, *, queue: str) -> NatsSubscriptionHandle:
        def deliver(subject: str, payload: bytes, reply: str) -> None:
            on_message(BusMessage(subject, payload, reply))

        try:
            subscription = await self._client.subscribe_straight(subject, deliver, queue=queue)
        except nats.errors.Error as error:
            raise _refused(subject, error) from error
        return NatsSubscriptionHandle(subscription)

    async def publish_durable(
        self, subject: str, payload: bytes, *, message_id: str, timeout: float = 5
    ) -> None:
        headers = {"Nats-Msg-Id": message_id}
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        _check_stored(
                            await self._client.ask(
                                subject, payload, timeout=min(2.0, timeout), headers=headers
                            )
                        )
                    except nats.errors.MaxPayloadError as error:
                        raise _refused(subject, error) from error
                    except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                        log.warning("%s: not stored yet (%s)", subject, error or type(error).__name__)
                        await asyncio.sleep(0.1)
                    else:
                        return
        except TimeoutError:
            raise BusTimeout(subject, timeout) from None

    async def close(self) -> None:
        self._closing.set()
        if not self._client.is_closed:
            try:
                async with asyncio.timeout(2):
                    await self._client.flush()
            except (nats.errors.Error, TimeoutError) as error:
                log.debug("flush at close: %s", error)
            await self._client.close()


def _check_stored(answer: bytes) -> None:
    """Raises nats.js.errors.APIError for a stream's refusal."""
    if b'"error"' in answer:
        raise nats.js.errors.APIError.from_error(json.loads(answer)["error"])


def _refused(subject: str, error: nats.errors.Error) -> BusError:
    if isinstance(error, nats.errors.MaxPayloadError):
        return MessageTooLarge(subject)
    return BusError(subject, str(error) or type(error).__name__)
