"""Ledger rows of what has just ended, in case the gateway that owned it can't store them now.

A gateway stores its own rows (ADR 18). Between an answer's last frame and the stored row it may die: then
this process, an engine worker or an edge, stores what it knows as a stand-in under the same key. The
gateway's own word, should it come after all, takes its place. Nothing is sent for a gateway that lives, or
that left with its books closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from baton_common.bus import Bus
from baton_common.clock import Clock
from baton_common.errors import BusError
from baton_common.leases import LeaseBoard
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.records import UsageRecord

log = logging.getLogger(__name__)

KEPT_SECONDS = 150.0
"""A gateway tries for about two minutes to store a row."""
KEPT_RECORDS = 4096
"""Of each gateway; the oldest goes first."""
TRY_SECONDS = 5.0
MAX_TRIES = 9
"""Of one row, all in vain; with the pauses between them about two minutes."""
FIRST_PAUSE_SECONDS = 0.5
"""Between tries in vain that follow each other, of whichever rows; it doubles up to the longest."""
MOST_DOUBLINGS = MAX_TRIES - 2


StillMissing = Callable[[list[UsageRecord]], Awaitable[list[UsageRecord]]]
"""Which of these nobody has stored: asked before they are."""


async def _all_of_them(records: list[UsageRecord]) -> list[UsageRecord]:
    return records


@dataclass
class _OfGateway:
    unwatch: Callable[[], None]
    ends: deque[tuple[float, UsageRecord]] = field(
        default_factory=lambda: deque[tuple[float, UsageRecord]](maxlen=KEPT_RECORDS)
    )


class RecentEnds:
    def __init__(
        self, bus: Bus, leases: LeaseBoard, clock: Clock, still_missing: StillMissing = _all_of_them
    ) -> None:
        self._bus = bus
        self._leases = leases
        self._clock = clock
        self._still_missing = still_missing
        self._gateways: dict[str, _OfGateway] = {}

    @property
    def num_kept(self) -> int:
        return sum(len(one.ends) for one in self._gateways.values())

    def note(self, gateway: str, record: UsageRecord) -> None:
        """`gateway` owned the attempt. If it is gone already, that is noticed within its lease."""
        now = self._clock.monotonic()
        of_gateway = self._gateways.get(gateway)
        if of_gateway is None:
            of_gateway = _OfGateway(self._leases.watch(gateway, self._on_lost, self._on_closed))
            self._gateways[gateway] = of_gateway
        ends = of_gateway.ends
        ends.append((now, record))
        while ends and now - ends[0][0] > KEPT_SECONDS:
            ends.popleft()

    def store_now(self, record: UsageRecord) -> None:
        """Its gateway was lost before it ended: nobody else is waited for, we may be the next to die."""
        spawn(self._store([record]))

    def close(self) -> None:
        for one in self._gateways.values():
            one.unwatch()
        self._gateways.clear()

    def _on_closed(self, gateway: str) -> None:
        del self._gateways[gateway]

    def _on_lost(self, gateway: str) -> None:
        oldest = self._clock.monotonic() - KEPT_SECONDS
        records = [record for ended_at, record in self._gateways.pop(gateway).ends if ended_at >= oldest]
        if records:
            spawn(self._store(records))

    async def _store(self, records: list[UsageRecord]) -> None:
        """A store that is away is waited for once, not once for each; a row that it refuses holds up no other
        and takes none with it."""
        missing = deque((record, 0) for record in await self._still_missing(records))
        if missing:
            log.info("%d ledger rows are stored in the place of a gateway that is gone", len(missing))
        in_a_row = 0
        while missing:
            if in_a_row:
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** min(in_a_row - 1, MOST_DOUBLINGS))
            record, num_in_vain = missing.popleft()
            try:
                await self._store_one(record.model_copy(update={"stand_in": True}))
            except BusError as error:
                log.warning("%d stand-ins not stored yet: %s", 1 + len(missing), error)
                in_a_row += 1
                if num_in_vain + 1 < MAX_TRIES:
                    missing.append((record, num_in_vain + 1))
                else:
                    log.error("usage record %s LOST", _message_id(record))
            else:
                in_a_row = 0

    async def _store_one(self, record: UsageRecord) -> None:
        await self._bus.publish_durable(
            subjects.after("usage", record.request_id),
            record.encode(),
            message_id=_message_id(record),
            timeout=TRY_SECONDS,
        )


def _message_id(record: UsageRecord) -> str:
    """Of its own, so that the queue takes the gateway's record, too."""
    return f"{record.request_id}-{record.run_id}-{record.attempt}-stand-in"
