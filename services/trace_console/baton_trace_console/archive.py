"""The stream TRACE: made as configured, read by request or from its newest end.

One direct request brings all messages of a subject; the server answers from its index of subjects, so it does
not matter how long the stream is. The newest are read page by page from the end, as far as they are needed.
Knows nothing of what spans mean.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable

from baton_common.bus import Bus
from baton_common.errors import RequestFailed
from baton_common.jetstream import API, ensure_stream, nanoseconds, stream_state
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.errors import ErrorBody
from baton_contracts.spans import SpanBatch

log = logging.getLogger(__name__)

MAX_BATCHES_OF_TRACE = 2000
"""Batches of one request that are read; an ordinary one has about a dozen."""
PAGE_MESSAGES = 250
TAIL_PAGES = 8
"""How far back the list of newest traces looks."""
_READ_SECONDS = 2.0
"""For all that one question reads."""
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


class Archive:
    def __init__(self, bus: Bus, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._monotonic = monotonic

    async def batches_of(self, request_id: str) -> list[SpanBatch]:
        """All that was reported on a request, in the order of arrival. Raises RequestFailed."""
        until = self._monotonic() + _READ_SECONDS
        payloads = await self._read(subjects.trace(request_id), 1, MAX_BATCHES_OF_TRACE, until)
        return await _decode(payloads)

    async def newest_of(self, tenant_id: str, num_traces: int) -> list[SpanBatch]:
        """The tenant's batches in the pages that hold so many of its traces, and in one more: those of one
        trace are close together, not in a row. If time runs out, what was read. Raises what `_read` does.
        """
        state = await stream_state(self._bus, subjects.STREAM_TRACE)
        until = self._monotonic() + _READ_SECONDS
        oldest = max(1, state.first_seq, state.last_seq - TAIL_PAGES * PAGE_MESSAGES + 1)
        first = state.last_seq + 1
        batches: list[SpanBatch] = []
        has_enough = False
        while first > oldest and not has_enough:
            has_enough = len({batch.request_id for batch in batches}) >= num_traces
            num_messages = min(PAGE_MESSAGES, first - oldest)
            first -= num_messages
            try:
                payloads = await self._read(subjects.TRACE_ALL, first, num_messages, until)
            except RequestFailed:
                if not batches:
                    raise
                break
            batches += await _decode_of(tenant_id, payloads)
        return batches

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


async def _decode_of(tenant_id: str, payloads: Iterable[bytes]) -> list[SpanBatch]:
    # Cheaper than decoding everybody's; a chance hit is sorted out below.
    mark = json.dumps(tenant_id, ensure_ascii=False)[1:-1].encode()
    batches = await _decode(payload for payload in payloads if mark in payload)
    return [batch for batch in batches if batch.tenant_id == tenant_id]


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
