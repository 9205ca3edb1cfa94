"""Keeps keys and limits equal to their buckets, and says at the start what is missing."""

from __future__ import annotations

import asyncio
import logging

from baton_common.nats_bus import NatsBus
from baton_contracts.limits import RULES
from baton_contracts.subjects import BUCKET_KEYS, BUCKET_LIMITS
from baton_edge_api.bucket_watch import watch_bucket
from baton_edge_api.keys import KeyRing
from baton_edge_api.limits.rules import RuleBook

log = logging.getLogger(__name__)


async def watch_keys(bus: NatsBus, ring: KeyRing) -> None:
    await watch_bucket(bus, BUCKET_KEYS, ">", ring)


async def watch_limits(bus: NatsBus, rules: RuleBook) -> None:
    await watch_bucket(bus, BUCKET_LIMITS, RULES, rules)


async def wait_for(what: str, first_sync: asyncio.Event, seconds: float) -> None:
    """Until the bucket was read once, but no longer: an edge that starts without it says what is missing."""
    try:
        async with asyncio.timeout(seconds):
            await first_sync.wait()
    except TimeoutError:
        log.warning("the %s could not be read within %.0f s; going on without them", what, seconds)
