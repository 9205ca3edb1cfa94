"""The edge's own NATS user may do with the bucket of limits what limits need, and with those of responses in
the background."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.buckets import open_bucket
from baton_common.nats_bus import NatsBus
from baton_contracts.limits import LimitRule, rule_entry
from baton_contracts.subjects import BUCKET_BACKGROUND, BUCKET_EVENTS, BUCKET_LIMITS
from baton_edge_api.bucket import BucketFull, Conflict, NatsBucket
from baton_edge_api.bucket_watch import watch_bucket
from baton_edge_api.limits.rules import RuleBook
from tests.support.restricted_nats import RestrictedNats


async def test_the_edge_reads_replaces_and_watches(relay_nats: RestrictedNats) -> None:
    bus: NatsBus = await relay_nats.connect("edge_api")
    rules = RuleBook(lambda _: None)
    watching = asyncio.create_task(watch_bucket(bus, BUCKET_LIMITS, "rule.>", rules))
    try:
        bucket = NatsBucket(bus, BUCKET_LIMITS)
        assert await bucket.read("use.key.k1") == (b"", 0)
        revision = await bucket.replace("use.key.k1", b"one", 0)
        assert await bucket.read("use.key.k1") == (b"one", revision)
        with pytest.raises(Conflict):
            await bucket.replace("use.key.k1", b"two", revision + 7)
        await asyncio.wait_for(rules.first_sync.wait(), 20)
        store = await open_bucket(bus.jetstream, BUCKET_LIMITS)
        await store.put(rule_entry("model.m"), LimitRule(concurrent=1).encode())
    finally:
        watching.cancel()
        await bus.close()


async def test_the_edge_keeps_and_removes_what_is_made_in_the_background(relay_nats: RestrictedNats) -> None:
    bus: NatsBus = await relay_nats.connect("edge_api")
    try:
        bucket = NatsBucket(bus, BUCKET_BACKGROUND)
        await bucket.replace("tenant.key", b"one", 0)
        await bucket.remove("tenant.key")
        assert (await bucket.read("tenant.key"))[0] == b""
        left = await bus.jetstream.stream_info(f"KV_{BUCKET_BACKGROUND}")
        assert left.state.messages == 0, "no mark of it stays behind"
    finally:
        await bus.close()


async def test_the_edge_follows_and_purges_events_within_their_bounds(relay_nats: RestrictedNats) -> None:
    bus: NatsBus = await relay_nats.connect("edge_api")
    try:
        bucket = NatsBucket(bus, BUCKET_EVENTS, keep_seconds=4200, max_bytes=1024 * 1024)
        await bucket.replace("tenant.a.0", b"one", 0)
        await bucket.replace("tenant.b.0", b"of another", 0)
        values = bucket.follow("tenant.a.>")
        assert [await anext(values), await anext(values)] == [b"one", None], "all that was there"
        await bucket.replace("tenant.a.1", b"two", 0)
        assert await anext(values) == b"two"
        await values.aclose()
        await bucket.purge("tenant.a.>")
        assert list(await bucket.read_all("tenant.>")) == ["tenant.b.0"]
        info = await bus.jetstream.stream_info(f"KV_{BUCKET_EVENTS}")
        assert (info.config.max_age, info.config.max_bytes) == (4200, 1024 * 1024)
        with pytest.raises(BucketFull):
            await bucket.replace("tenant.a.2", b"x" * 1024 * 1024, 0)
    finally:
        await bus.close()
