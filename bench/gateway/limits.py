"""Gives the team of the benchmark's key limits that are counted for every request, and never reached."""

from __future__ import annotations

import asyncio

from baton_common.nats_bus import NatsBus
from baton_contracts.limits import LimitRule, rule_entry, team_party
from baton_contracts.subjects import BUCKET_LIMITS

PARTY = team_party("default", "default")
"""The development key's. A key's own rule lies with the key, in another bucket."""
RULE = LimitRule(requests_per_minute=10**8, tokens_per_minute=10**12, concurrent=10**6)
PROOF = f"x-ratelimit-limit-requests: {RULE.requests_per_minute}\r\n".encode()
"""In the head of an answer that was counted."""
SETTLE_SECONDS = 0.5


def set_limits(operator: dict[str, str]) -> None:
    asyncio.run(_put(operator))


async def _put(operator: dict[str, str]) -> None:
    bus = await NatsBus.connect(
        operator["nats_url"], name="bench", user=operator["user"], password=operator["password"]
    )
    try:
        bucket = await bus.jetstream.key_value(BUCKET_LIMITS)
        await bucket.put(rule_entry(PARTY), RULE.encode())
        await asyncio.sleep(SETTLE_SECONDS)  # the edge watches the bucket
    finally:
        await bus.close()
