"""Ledger rows in reserve: what the edge has passed on, should nobody who made it live to book it.

An engine worker stands in for a gateway that is gone (ADR 18). Of an answer from a cache or another server,
and where the engine is gone as well, only the edge is left to tell. It comes last: it waits, asks the books,
and stores what is not in them. Owns what such a row says.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from baton_common.bus import Bus
from baton_common.errors import RequestFailed
from baton_contracts import subjects
from baton_contracts.envelope import Envelope
from baton_contracts.frames import End, Prologue, Usage
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import BooksQuery, BooksReply
from baton_contracts.records import Outcome, UsageRecord
from baton_edge_api.side_questions import ask

log = logging.getLogger(__name__)

OTHERS_SECONDS = 8.0
"""After a gateway's loss was noticed here: an engine worker that lives has noticed it too, and stored."""
ASK_SECONDS = 5.0
MAX_TRIES = 8
FIRST_PAUSE_SECONDS = 2.0
"""With doubling pauses: four minutes in all."""
ASKED_AT_ONCE = 100


def record_of(
    envelope: Envelope, prologue: Prologue, end: End | None, num_heard: int, ended_at: float
) -> UsageRecord:
    """As one attempt: that which began it, of which the gateway has a row if it lives after all. Without an
    End what was heard counts: tokens or, where no ids are named, pieces of about a token each."""
    counted = Usage(prompt_tokens=prologue.prompt_tokens or 0, completion_tokens=num_heard)
    return UsageRecord(
        request_id=envelope.request_id,
        run_id=envelope.run_id,
        attempt=prologue.begun_by or prologue.attempt,
        tenant=envelope.tenant,
        model=prologue.model,
        replica=prologue.replica,
        usage=end.usage if end else counted,
        outcome=_outcome(prologue, end),
        finish_reason=end.finish_reason if end else None,
        error_code=None if end else "stop_lost",
        started_at=envelope.sent_at,
        ended_at=ended_at,
    )


def _outcome(prologue: Prologue, end: End | None) -> Outcome:
    if end is None:
        return "error"
    if end.finish_reason == "cancelled":
        return "cancelled"
    return "cache_hit" if prologue.costs_nothing else "finished"


class Unbooked:
    """Which of a lost gateway's answers nobody else has booked."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def __call__(self, records: list[UsageRecord]) -> list[UsageRecord]:
        """None of them where the books can't be asked: a second bill would be worse than none."""
        await asyncio.sleep(OTHERS_SECONDS)
        by_tenant: dict[str, list[UsageRecord]] = defaultdict(list)
        for record in records:
            by_tenant[record.tenant.tenant_id].append(record)
        missing: list[UsageRecord] = []
        for tenant_id, theirs in by_tenant.items():
            for first in range(0, len(theirs), ASKED_AT_ONCE):
                missing += await self._missing(tenant_id, theirs[first : first + ASKED_AT_ONCE])
        return missing

    async def _missing(self, tenant_id: str, records: Sequence[UsageRecord]) -> list[UsageRecord]:
        first, *more = (record.request_id for record in records)
        query = BooksQuery(kind="usage", tenant_id=tenant_id, request_id=first, more_request_ids=tuple(more))
        pause = FIRST_PAUSE_SECONDS
        for _ in range(MAX_TRIES):
            try:
                subject = subjects.books(new_request_id())
                reply = await ask(
                    self._bus, subject, query, BooksReply, to="after_answer", seconds=ASK_SECONDS
                )
            except RequestFailed as failed:
                log.warning("rows of a lost gateway not looked up yet: %s", failed)
                await asyncio.sleep(pause)
                pause *= 2
            else:
                booked = {(row.request_id, row.run_id) for row in reply.usage}
                return [record for record in records if (record.request_id, record.run_id) not in booked]
        log.error(
            "whether %d rows of a lost gateway are stored is not known: they are left out", len(records)
        )
        return []
