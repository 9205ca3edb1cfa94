"""Limits before the whole relay: counted by the engine's tokenizer, settled with its count, given back when a
stop behind the edge refuses."""

from __future__ import annotations

from pathlib import Path

from baton_common.buckets import open_bucket
from baton_common.nats_bus import NatsBus
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import AccountState, LimitRule, key_party, use_entry
from baton_contracts.subjects import BUCKET_KEYS, BUCKET_LIMITS
from tests.support.fake_engine import FakeEngine
from tests.support.scripted_answer import Script
from tests.support.whole_relay import KEY, whole_relay


async def _limit(bus: NatsBus, rule: LimitRule) -> None:
    keys = await open_bucket(bus.jetstream, BUCKET_KEYS)
    entry = KeyEntry(key_id="whole", tenant_id="default", limits=rule)
    await keys.put(key_hash(KEY), entry.encode())


async def _use(bus: NatsBus) -> AccountState:
    bucket = await open_bucket(bus.jetstream, BUCKET_LIMITS)
    return AccountState.decode((await bucket.get(use_entry(key_party("whole")))).value or b"")


async def test_reserved_settled_and_given_back(nats_url: str, tmp_path: Path) -> None:
    bus = await NatsBus.connect(nats_url, name="operator")
    await _limit(bus, LimitRule(requests_per_minute=9, tokens_per_minute=500, concurrent=1))
    try:
        async with whole_relay(nats_url, tmp_path, FakeEngine(Script(words=("Hi", " there", ".")))) as relay:
            answer = await relay.ask(max_tokens=100)
            used = answer.json()["usage"]
            assert answer.headers["x-ratelimit-remaining-tokens"] == str(500 - 2 - 100)
            assert used == used | {
                "prompt_tokens": 8,
                "total_tokens": 11,
            }  # with what the prompt builder added
            state = await _use(bus)
            assert (state.requests, state.tokens, state.seats) == (1, 11, 0)
            status, code, _ = await relay.refusal(max_tokens=100, model="no-such-model")
            assert (status, code) == (404, "model_not_found")
            state = await _use(bus)
            assert (state.requests, state.tokens, state.seats) == (1, 11, 0)
            assert await relay.refusal(max_tokens=490) == (429, "rate_limit_exceeded", None)
    finally:
        keys = await open_bucket(bus.jetstream, BUCKET_KEYS)
        await keys.delete(key_hash(KEY))
        await bus.close()
