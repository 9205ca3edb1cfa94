"""The stream AFTER and its one durable consumer, as this service wants them."""

from __future__ import annotations

from baton_common.bus import Bus
from baton_common.jetstream import ensure_consumer, ensure_stream, nanoseconds
from baton_contracts.subjects import ROOT, STREAM_AFTER

CONSUMER = "after_answer"


async def ensure_queue(bus: Bus, ack_wait_seconds: float) -> None:
    """A record stays in AFTER until it is acknowledged: no age and no size makes it go. Raises BusError."""
    await ensure_stream(
        bus,
        {
            "name": STREAM_AFTER,
            "subjects": [f"{ROOT}.after.>"],
            "retention": "workqueue",
            "storage": "file",
            "discard": "new",
            "duplicate_window": nanoseconds(120),
        },
    )
    await ensure_consumer(
        bus,
        STREAM_AFTER,
        {
            "durable_name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": nanoseconds(ack_wait_seconds),
            "max_deliver": -1,
            "max_ack_pending": 4096,
        },
    )
