"""API keys: hashed, listed, revoked, on a real bus."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, cast

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from baton_cli.errors import CliError
from baton_cli.keys import KeyBook, new_key, open_key_book
from baton_cli.operator_bus import Operator
from baton_common.buckets import BucketEntry, open_bucket, read_bucket
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import Budget, LimitRule


@dataclass
class Store:
    jetstream: JetStreamContext
    name: str
    bucket: KeyValue

    def read_all(self) -> AsyncGenerator[BucketEntry, None]:
        return read_bucket(self.jetstream, self.name)

    async def names(self) -> list[str]:
        return sorted([entry.name async for entry in self.read_all()])


@pytest.fixture
async def store(nats_url: str) -> AsyncIterator[Store]:
    client = await nats.connect(nats_url)
    jetstream, name = client.jetstream(), f"keys_{secrets.token_hex(4)}"
    yield Store(jetstream, name, await open_bucket(jetstream, name))
    await client.close()


@pytest.fixture
def bucket(store: Store) -> KeyValue:
    return store.bucket


@pytest.fixture
def book(store: Store) -> KeyBook:
    minutes = count()
    return KeyBook(
        store.bucket, store.read_all, lambda: datetime(2026, 11, 29, 14, next(minutes), tzinfo=UTC)
    )


def test_the_hash_is_plain_sha256() -> None:
    assert key_hash("sk-baton-test") == "bd5ee407475ff0b0823e09cba1331ccdcfbb92ca22d2245815fa7bb2f525f23b"


def test_keys_are_long_random_and_marked() -> None:
    first, second = new_key(), new_key()
    assert first.startswith("sk-baton-")
    assert len(first) == len("sk-baton-") + 43
    assert first != second


async def test_the_bus_gets_the_digest_and_never_the_key(book: KeyBook, bucket: KeyValue) -> None:
    key, record = await book.create(tenant_id="acme", team="red", name="ci")
    entry = await bucket.get(key_hash(key))
    assert entry.value is not None
    assert key.encode() not in entry.value
    assert KeyEntry.decode(entry.value) == record
    assert (record.tenant_id, record.team, record.name, record.revoked) == ("acme", "red", "ci", False)
    assert record.created_at == "2026-11-29T14:00:00+00:00"


async def test_a_revoked_key_stays_in_the_list(book: KeyBook) -> None:
    assert await book.list() == []
    _, first = await book.create(tenant_id="acme", team="red", name="one")
    _, second = await book.create(tenant_id="acme", team="red", name="two")
    await book.revoke(first.key_id)
    assert [(record.key_id, record.revoked) for record in await book.list()] == [
        (first.key_id, True),
        (second.key_id, False),
    ]


async def test_an_unknown_id_is_not_revoked_in_silence(book: KeyBook) -> None:
    with pytest.raises(CliError, match="key_nothing"):
        await book.revoke("key_nothing")


async def test_a_new_development_key_replaces_the_old_one_and_no_other(book: KeyBook, store: Store) -> None:
    key, other = await book.create(tenant_id="acme", team="red", name="one")
    await book.put_dev_key("sk-first-dev-key")
    await book.put_dev_key("sk-first-dev-key")
    await book.put_dev_key("sk-second-dev-key")
    assert await store.names() == sorted([key_hash(key), key_hash("sk-second-dev-key")])
    assert [record.key_id for record in await book.list()] == [other.key_id, "dev"]


async def test_a_record_that_is_not_one_is_left_alone(book: KeyBook, store: Store) -> None:
    await store.bucket.put("foreign", b"not json")
    await store.bucket.put("list", b"[1]")
    assert await book.list() == []
    assert await store.names() == ["foreign", "list"]


async def test_a_bus_that_is_gone_is_a_sentence() -> None:
    operator = Operator("nats://127.0.0.1:1", "operator", "pw")
    with pytest.raises(CliError, match=r"does not answer\. Is Baton running"):
        async with open_key_book(operator):
            pytest.fail("connected to nothing")


async def test_the_bucket_is_made_if_the_edge_did_not(nats_url: str) -> None:
    async with open_key_book(Operator(nats_url, "", "")) as book:
        key, record = await book.create(tenant_id="acme", team="red", name="one")
    async with open_key_book(Operator(nats_url, "", "")) as book:
        assert record in await book.list()
    assert key.startswith("sk-baton-")


async def test_a_rotated_key_keeps_its_id_and_limits_and_the_old_one_ends(
    book: KeyBook, bucket: KeyValue
) -> None:
    limits = LimitRule(requests_per_minute=60)
    old, entry = await book.create(tenant_id="acme", team="red", name="ci", limits=limits, models=("auto",))
    new, rotated = await book.rotate(entry.key_id, 3600)
    assert new != old
    assert (rotated.key_id, rotated.limits, rotated.models) == (entry.key_id, limits, ("auto",))
    kept = KeyEntry.decode((await bucket.get(key_hash(old))).value or b"")
    assert kept.expires_at == datetime(2026, 11, 29, 15, 1, tzinfo=UTC).timestamp()
    assert KeyEntry.decode((await bucket.get(key_hash(new))).value or b"").expires_at is None
    await book.rotate(entry.key_id, 86_400)  # the first one's end is not put off
    assert KeyEntry.decode((await bucket.get(key_hash(old))).value or b"") == kept
    await book.revoke(entry.key_id)
    assert [each.revoked for each in await book.list()] == [True, True, True]
    with pytest.raises(CliError, match="is revoked"):
        await book.rotate(entry.key_id, 0)


async def test_limits_are_changed_for_both_keys_of_a_rotation(book: KeyBook) -> None:
    _, entry = await book.create(tenant_id="acme", team="red", name="ci")
    await book.rotate(entry.key_id, 3600)
    budget = Budget(picos=5, period="day")
    await book.set_limits(entry.key_id, lambda rule: rule.model_copy(update={"budget": budget}), ("auto",))
    await book.set_limits(entry.key_id, lambda rule: rule.model_copy(update={"concurrent": 2}))
    wanted = (LimitRule(concurrent=2, budget=budget), ("auto",))
    assert [(each.limits, each.models) for each in await book.list()] == [wanted, wanted]


async def test_a_new_development_key_keeps_the_limits_of_the_old_one(book: KeyBook) -> None:
    await book.put_dev_key("sk-first-dev-key")
    await book.set_limits("dev", lambda _: LimitRule(concurrent=2))
    await book.put_dev_key("sk-second-dev-key")
    assert [each.limits for each in await book.list()] == [LimitRule(concurrent=2)]


class Overtaken:
    """A bucket of which somebody else changes an entry just before the next write."""

    def __init__(self, bucket: KeyValue, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._bucket = bucket
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    async def put(self, *args: Any) -> int:
        await self._overtake()
        return await self._bucket.put(*args)

    async def update(self, *args: Any, **more: Any) -> int:
        await self._overtake()
        return await self._bucket.update(*args, **more)

    async def _overtake(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile:
            await meanwhile()


async def test_a_change_of_limits_does_not_bring_a_revoked_key_back(book: KeyBook, store: Store) -> None:
    _, entry = await book.create(tenant_id="acme", team="core", name="ci")
    overtaken = cast(Any, Overtaken(store.bucket, lambda: book.revoke(entry.key_id)))
    other = KeyBook(overtaken, store.read_all)
    changed = await other.set_limits(entry.key_id, lambda _: LimitRule(concurrent=3))
    (stored,) = [each for each in await book.list() if each.key_id == entry.key_id]
    assert stored == changed
    assert (stored.revoked, stored.limits) == (True, LimitRule(concurrent=3))
