"""The cancel tree of a process: who holds a part of which request, and how to stop it.

A cancel is broadcast on `cancel.RID`; each holder stops its part and acks. Only the exact id is touched.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from baton_common.bus import Bus, BusMessage, Subscription
from baton_common.clock import Clock
from baton_common.errors import BusError
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.frames import Cancel, CancelAck
from baton_contracts.subjects import Service

log = logging.getLogger(__name__)

_REMEMBERED = 4096
_REMEMBERED_SECONDS = 5.0
"""Longer than a handoff is under way."""

OnCancel = Callable[[Cancel], Awaitable[int | None]]
"""Stops one part; returns the KV blocks freed, if it knows of any."""


class CancelTree:
    """A cancel may come just before a request does: it is remembered for a while, so that whoever takes the
    request afterwards is stopped too."""

    def __init__(self, bus: Bus, service: Service, instance: str, clock: Clock) -> None:
        self._bus = bus
        self._service: Service = service
        self._instance = instance
        self._clock = clock
        self._holders: dict[str, list[OnCancel]] = {}
        self._early: OrderedDict[tuple[str, int | None], tuple[float, Cancel]] = OrderedDict()
        """By request and attempt; None is the whole request."""
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(subjects.CANCEL_ALL, self._on_message)

    async def stop(self) -> None:
        if self._subscription:
            await self._subscription.unsubscribe()

    def register(
        self, request_id: str, on_cancel: OnCancel, run_id: str = "", attempt: int = 1
    ) -> Callable[[], None]:
        """Returns the function that takes the part out again; idempotent."""
        self._holders.setdefault(request_id, []).append(on_cancel)
        for meant in (None, attempt):
            if cancel := self._cancelled_before(request_id, run_id, meant):
                self._begin([on_cancel], cancel, reply="")

        def release() -> None:
            parts = self._holders.get(request_id, [])
            if on_cancel in parts:
                parts.remove(on_cancel)
            if not parts:
                self._holders.pop(request_id, None)

        return release

    @property
    def num_held(self) -> int:
        return len(self._holders)

    def _on_message(self, message: BusMessage) -> None:
        request_id = subjects.request_id_of(message.subject)
        try:
            cancel = Cancel.decode(message.payload)
        except MalformedMessage as error:
            log.warning("cancel ignored: %s", error)
            return
        if cancel.run_id:
            self._remember(request_id, cancel)
        if parts := self._holders.get(request_id):
            self._begin(list(parts), cancel, message.reply)

    def _remember(self, request_id: str, cancel: Cancel) -> None:
        now = self._clock.monotonic()
        self._early[request_id, cancel.attempt] = (now, cancel)
        while self._early:
            oldest = next(iter(self._early))
            if len(self._early) <= _REMEMBERED and now - self._early[oldest][0] <= _REMEMBERED_SECONDS:
                return
            del self._early[oldest]

    def _cancelled_before(self, request_id: str, run_id: str, attempt: int | None) -> Cancel | None:
        heard_at, cancel = self._early.get((request_id, attempt), (0.0, None))
        is_fresh = self._clock.monotonic() - heard_at <= _REMEMBERED_SECONDS
        return cancel if cancel and is_fresh and cancel.run_id == run_id else None

    def _begin(self, parts: list[OnCancel], cancel: Cancel, reply: str) -> None:
        spawn(self._stop(parts, cancel, reply))

    async def _stop(self, parts: list[OnCancel], cancel: Cancel, reply: str) -> None:
        freed: int | None = None
        for part in parts:
            try:
                blocks = await part(cancel)
            except Exception:  # whatever one part says: the others are stopped all the same
                log.exception("cancel of %s failed in part", cancel.request_id)
                continue
            if blocks is not None:
                freed = (freed or 0) + blocks
        if reply:
            ack = CancelAck(stop=self._service, instance=self._instance, blocks_freed=freed)
            try:
                await self._bus.publish(reply, ack.encode())
            except BusError as error:
                log.debug("cancel ack not sent: %s", error)


async def broadcast_cancel(
    bus: Bus, cancel: Cancel, *, timeout: float = 1.0, enough: int = 8
) -> list[CancelAck]:
    """Tells everybody and collects the acks; for the canceller's trace. `enough` acks end the wait."""
    answers = await bus.request_many(
        subjects.cancel(cancel.request_id), cancel.encode(), timeout=timeout, enough=enough
    )
    return [CancelAck.decode(answer) for answer in answers]
