"""Gives the benchmark's key limits that are counted for every request, and never reached."""

from __future__ import annotations

import asyncio

from baton_common.nats_bus import NatsBus
from baton_contracts.limits import LimitRule, key_party, rule_entry
from baton_contracts.subjects import BUCKET_LIMITS

DEV_KEY_ID = "dev"
RULE = LimitRule(requests_per_minute=10**8, tokens_per_minute=10**12, concurrent=10**6)
SETTLE_SECONDS = 0.5


def set_limits(operator: dict[str, str]) -> None:
    asyncio.run(_put(operator))


async def _put(operator: dict[str, str]) -> None:
    bus = await NatsBus.connect(
        operator["nats_url"], name="bench", user=operator["user"], password=operator["password"]
    )
    try:
        bucket = await bus.jetstream.key_value(BUCKET_LIMITS)
        await bucket.put(rule_entry(key_party(DEV_KEY_ID)), RULE.encode())
        await asyncio.sleep(SETTLE_SECONDS)  # the edge watches the bucket
    finally:
        await bus.close()
