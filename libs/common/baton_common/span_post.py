"""Spans on their way to the trace stream: what an outage of the bus may have swallowed is stored behind it.

Owns the spans of the last seconds and, while the bus is away, all since it went, within a bound: beyond that
the oldest are dropped and counted. The same spans may be stored twice; readers know a span by its id.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from baton_common.bus import Bus
from baton_common.clock import Clock
from baton_common.errors import BusError, BusUnavailable, MessageTooLarge
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.spans import SpanBatch

log = logging.getLogger(__name__)

SHARE_SECONDS = 0.02
"""They wait so long for a message that goes out anyway: nobody waits for them."""
KEPT_SECONDS = 5.0
"""What was sent so shortly before the bus was missed may not have arrived."""
KEPT_BYTES = 4 * 1024 * 1024
"""Some two thousand requests in most processes."""
STORE_SECONDS = 30.0
"""Until the stream is there again behind a restart of its server."""


@dataclass(frozen=True, slots=True)
class _Batch:
    made_at: float
    subject: str
    message_id: str
    payload: bytes
    is_sent: bool


class SpanPost:
    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._kept: deque[_Batch] = deque()
        self._kept_bytes = 0
        self.num_dropped = 0
        """Batches, of one request each, that nobody will read."""
        bus.when_back(self._on_back)

    async def send(self, batch: SpanBatch) -> None:
        """Raises nothing: where the bus is away they go out when it is back."""
        if not batch.spans:
            return
        subject, payload = subjects.trace(batch.request_id), batch.encode()
        is_sent = True
        try:
            await self._bus.publish(subject, payload, within=SHARE_SECONDS)
        except BusUnavailable:
            is_sent = False
        except BusError as error:
            log.warning("spans dropped: %s", error)
            self.num_dropped += 1
            return
        message_id = f"{batch.request_id}-{batch.spans[0].span_id}"
        self._keep([_Batch(self._clock.monotonic(), subject, message_id, payload, is_sent)])

    def _on_back(self) -> None:
        spawn(self._store_kept())

    def _keep(self, batches: Iterable[_Batch]) -> None:
        for batch in batches:
            self._kept.append(batch)
            self._kept_bytes += len(batch.payload)
        while self._kept and (self._kept_bytes > KEPT_BYTES or self._has_arrived(self._kept[0])):
            oldest = self._kept.popleft()
            self._kept_bytes -= len(oldest.payload)
            self.num_dropped += not oldest.is_sent

    def _has_arrived(self, batch: _Batch) -> bool:
        is_old = batch.made_at < self._clock.monotonic() - KEPT_SECONDS
        return batch.is_sent and is_old and self._bus.is_settled

    def _take_kept(self) -> deque[_Batch]:
        kept, self._kept, self._kept_bytes = self._kept, deque(), 0
        return kept

    async def _store_kept(self) -> None:
        """One by one, each acknowledged by the stream: nobody waits for them."""
        left = self._take_kept()
        while left:
            batch = left[0]
            try:
                await self._bus.publish_durable(
                    batch.subject, batch.payload, message_id=batch.message_id, timeout=STORE_SECONDS
                )
            except MessageTooLarge as error:
                self._drop([batch], error)
            except BusError as error:
                if self._bus.connected:
                    self._drop(left, error)
                else:  # lost again: they wait for its next return, before what came since
                    self._keep([*left, *self._take_kept()])
                return
            left.popleft()

    def _drop(self, batches: Collection[_Batch], error: BusError) -> None:
        num_lost = sum(not batch.is_sent for batch in batches)
        self.num_dropped += num_lost
        log.warning("%d batches of spans dropped: %s", num_lost, error)
