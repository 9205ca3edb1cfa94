"""The evidence of a running system, gathered over the bus as its operator.

Knows where each witness is found: spans in the stream TRACE, rows by questions to the books, counters in
heartbeats.
"""

from __future__ import annotations

import asyncio
import datetime
from contextlib import suppress

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy

from baton_cli.errors import CliError
from baton_cli.operator_bus import Operator, operator_bus
from baton_cli.reconcile.evidence import Evidence
from baton_cli.replica_beats import replica_beats
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.heartbeats import LEASE_INTERVAL_SECONDS, Lease
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import BooksQuery, BooksReply
from baton_contracts.records import UsageRecord
from baton_contracts.spans import SpanBatch

MAX_ROWS_OF_REPLY = 500
_BOOKS_SECONDS = 15.0
_SILENCE_SECONDS = 5.0


async def collect(operator: Operator, *, since: float) -> Evidence:
    """All of requests that ended from `since` (Unix seconds) on, and, so that counters can be compared, all
    since the oldest living replica began to count. Raises CliError."""
    async with operator_bus(operator, name="baton reconcile") as client:
        found = Evidence()
        heard = asyncio.gather(replica_beats(client), _spans_dropped(client))
        found.replicas, found.spans_dropped = await heard
        began = [beat.counting_since for beat in found.replicas if beat.counting_since]
        first = min([since, *began])
        await _read_traces(client, found, first)
        for tenant_id in sorted(found.tenants):
            found.rows.extend(await _rows(client, tenant_id, first))
        return found


async def _spans_dropped(client: Client) -> dict[str, int]:
    """By instance; listens for long enough that each has said it."""
    dropped: dict[str, int] = {}

    async def note(message: Msg) -> None:
        with suppress(MalformedMessage):
            lease = Lease.decode(message.data)
            if lease.spans_dropped:
                dropped[lease.instance] = lease.spans_dropped

    subscription = await client.subscribe(subjects.LEASE_ALL, cb=note)
    await asyncio.sleep(2 * LEASE_INTERVAL_SECONDS)
    await subscription.unsubscribe()
    return dropped


async def _read_traces(client: Client, found: Evidence, since: float) -> None:
    stream = client.jetstream(timeout=_SILENCE_SECONDS)
    last = (await stream.stream_info(subjects.STREAM_TRACE)).state.last_seq
    start = datetime.datetime.fromtimestamp(since, tz=datetime.UTC).isoformat()
    config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=start)  # type: ignore[arg-type]
    subscription = await stream.subscribe(subjects.TRACE_ALL, ordered_consumer=True, config=config)
    info = await subscription.consumer_info()
    left = info.num_pending or 0
    while left > 0:
        message = await subscription.next_msg(timeout=_SILENCE_SECONDS)
        left = 0 if message.metadata.sequence.stream >= last else message.metadata.num_pending
        try:
            found.add_spans(SpanBatch.decode(message.data))
        except MalformedMessage:
            continue
    await subscription.unsubscribe()


async def _rows(client: Client, tenant_id: str, since: float) -> list[UsageRecord]:
    """Newest first, page by page."""
    rows: dict[tuple[str, str, int], UsageRecord] = {}
    until: float | None = None
    while True:
        query = BooksQuery(kind="usage", tenant_id=tenant_id, since=since, until=until)
        subject = subjects.books(new_request_id())
        reply = BooksReply.decode(
            (await client.request(subject, query.encode(), timeout=_BOOKS_SECONDS)).data
        )
        if reply.error:
            raise CliError(f"The books can't be read: {reply.error.message}")
        fresh = [row for row in reply.usage if (row.request_id, row.run_id, row.attempt) not in rows]
        rows |= {(row.request_id, row.run_id, row.attempt): row for row in fresh}
        if len(reply.usage) < MAX_ROWS_OF_REPLY or not fresh:
            return list(rows.values())
        until = reply.usage[-1].ended_at + 1e-6  # rows of the same moment may lie on the next page
