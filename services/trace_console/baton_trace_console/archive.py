"""The stream TRACE: made as configured, read by request or from its newest end.

One direct request brings all messages of a subject; the server answers from its index of subjects, so it does
not matter how long the stream is. For a list the stream is looked through page by page from its end, as far
as needed and as long as there is time; the traces that are found are then read whole, each by its subject.
Knows nothing of what spans mean.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from baton_common.bus import Bus
from baton_common.errors import RequestFailed
from baton_common.jetstream import API, ensure_stream, nanoseconds, stream_state
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.errors import ErrorBody
from baton_contracts.spans import SpanBatch
from baton_trace_console.list_question import ListAsked

log = logging.getLogger(__name__)

MAX_BATCHES_OF_TRACE = 2000
"""Batches of one request that are read; an ordinary one has about a dozen."""
PAGE_MESSAGES = 250
MAX_PAGES = 40
"""How far back one question for a list looks; the next one goes on from there."""
_READ_SECONDS = 2.0
"""For what one question looks through, and for each trace that it reads."""
_READS_AT_ONCE = 16
_DECODE_AT_ONCE = 100


async def ensure_archive(bus: Bus, *, max_age_seconds: float, max_bytes: int) -> None:
    """Raises BusError."""
    await ensure_stream(
        bus,
        {
            "name": subjects.STREAM_TRACE,
            "subjects": [subjects.TRACE_ALL],
            "retention": "limits",
            "storage": "file",
            "discard": "old",
            "max_age": nanoseconds(max_age_seconds),
            "max_bytes": max_bytes,
            "allow_direct": True,
        },
    )


@dataclass(frozen=True)
class Newest:
    request_ids: tuple[str, ...]
    next_page: int | None
    """`ListAsked.before` of the question that goes on; None: nothing is left."""


class Archive:
    def __init__(self, bus: Bus, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._monotonic = monotonic

    async def batches_of(self, request_id: str, first_seq: int = 1) -> list[SpanBatch]:
        """All that was reported on a request, in the order of arrival; from message `first_seq` of the stream
        on. Raises RequestFailed."""
        until = self._monotonic() + _READ_SECONDS
        payloads = await self._read(subjects.trace(request_id), first_seq, MAX_BATCHES_OF_TRACE, until)
        return await _decode(payloads)

    async def batches_of_all(
        self, request_ids: Iterable[str], first_seq: int = 1
    ) -> list[tuple[str, list[SpanBatch]]]:
        """In their order. Raises what `batches_of` does."""
        gate = asyncio.Semaphore(_READS_AT_ONCE)

        async def read(request_id: str) -> tuple[str, list[SpanBatch]]:
            async with gate:
                return request_id, await self.batches_of(request_id, first_seq)

        return await asyncio.gather(*map(read, request_ids))

    async def newest_of(self, tenant_id: str, asked: ListAsked) -> Newest:
        """Ids of the tenant's traces as asked, by their newest report. If time runs out, what was found."""
        state = await stream_state(self._bus, subjects.STREAM_TRACE)
        until = self._monotonic() + _READ_SECONDS
        oldest = max(1, state.first_seq)
        behind = begin = min(state.last_seq + 1, asked.before or state.last_seq + 1)
        found: dict[str, None] = {}
        for _ in range(MAX_PAGES):
            if behind <= oldest or len(found) >= asked.limit:
                break
            first = max(oldest, behind - PAGE_MESSAGES)
            try:
                payloads = await self._read(subjects.TRACE_ALL, first, behind - first, until)
            except RequestFailed:
                if behind == begin:
                    raise
                break
            behind = await _search(payloads, first, tenant_id, asked, found)
            if behind == first and _ended(payloads) < asked.since:
                behind = oldest
        if asked.before:
            for request_id in await self._listed_before(found, tenant_id, asked, asked.before):
                del found[request_id]
        return Newest(tuple(found), behind if behind > oldest else None)

    async def _listed_before(
        self, request_ids: Iterable[str], tenant_id: str, asked: ListAsked, end: int
    ) -> list[str]:
        """Those that a page before this one has: it was reported on them from message `end` on as well."""

        def tells(batch: SpanBatch) -> bool:
            return batch.tenant_id == tenant_id and _is_asked(batch, asked)

        told = await self.batches_of_all(request_ids, end)
        return [request_id for request_id, batches in told if any(map(tells, batches))]

    async def _read(self, subject: str, first_seq: int, limit: int, until: float) -> list[bytes]:
        """Raises RequestFailed if all of it did not come until then."""
        body = {"seq": first_seq, "next_by_subj": subject, "batch": limit}
        # An empty message ends the batch, so what it holds is complete unless time ran out.
        payloads = await self._bus.request_many(
            f"{API}.DIRECT.GET.{subjects.STREAM_TRACE}",
            json.dumps(body).encode(),
            timeout=max(0.0, until - self._monotonic()),
            enough=limit,
        )
        if self._monotonic() >= until:
            text = f"The store of traces did not answer within {_READ_SECONDS:g} s. Try again shortly."
            raise RequestFailed(
                ErrorBody(code="stop_unresponsive", message=text, stop="trace_console", retry_after_seconds=2)
            )
        return payloads


async def _search(
    payloads: Sequence[bytes], first: int, tenant_id: str, asked: ListAsked, found: dict[str, None]
) -> int:
    """Adds to `found`, newest first, until there are as many as are asked for. Returns the number of the
    message that was looked at last; they are numbered from `first` on."""
    # Cheaper than decoding everybody's; a chance hit is sorted out below.
    marks = [json.dumps(tenant_id, ensure_ascii=False)[1:-1].encode()]
    if asked.status:
        marks.append(f'"status":"{asked.status}"'.encode())
    for number in reversed(range(len(payloads))):
        if all(mark in payloads[number] for mark in marks):
            for batch in await _decode([payloads[number]]):
                if batch.tenant_id == tenant_id and _is_asked(batch, asked):
                    found[batch.request_id] = None
            if len(found) >= asked.limit:
                return first + number
        if number % _DECODE_AT_ONCE == 0:
            await asyncio.sleep(0)  # others have their turn
    return first


def _is_asked(batch: SpanBatch, asked: ListAsked) -> bool:
    """How a request ended its edge says, in one batch."""
    ended = _end_of(batch)
    if ended < asked.since or (asked.until is not None and ended >= asked.until):
        return False
    at_edge = [span for span in batch.spans if span.service == "edge_api"]
    return asked.status is None or any(span.status == asked.status for span in at_edge)


def _ended(payloads: Sequence[bytes]) -> float:
    """When what the oldest of them tells of ended; never, where none of them can be read."""
    for payload in payloads:
        try:
            return _end_of(SpanBatch.decode(payload))
        except MalformedMessage:
            continue
    return math.inf


def _end_of(batch: SpanBatch) -> float:
    return max((span.start + span.duration for span in batch.spans), default=0.0)


async def _decode(payloads: Iterable[bytes]) -> list[SpanBatch]:
    """What is no batch is left out: anybody on the bus may have written it."""
    batches: list[SpanBatch] = []
    for number, payload in enumerate(payloads, start=1):
        try:
            batches.append(SpanBatch.decode(payload))
        except MalformedMessage as error:
            log.warning("left out of a trace: %s", error)
        if number % _DECODE_AT_ONCE == 0:
            await asyncio.sleep(0)  # others have their turn
    return batches
