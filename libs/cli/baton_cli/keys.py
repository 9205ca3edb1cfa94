"""API keys: made here, shown once, kept on the bus as a SHA-256 only.

What an entry of the bucket says is the contract's (`baton_contracts.keys`); the edge watches it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import nats.js.errors
from nats.aio.client import Client
from nats.js.kv import KeyValue

from baton_cli.errors import CliError
from baton_cli.operator_bus import Operator, operator_bus
from baton_common.buckets import BucketEntry, open_bucket, read_bucket
from baton_contracts.base import MalformedMessage
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import LimitRule
from baton_contracts.subjects import BUCKET_KEYS

PREFIX = "sk-baton-"
DEV_KEY_ID = "dev"
DEV_TENANT = "default"
NO_LIMITS = LimitRule()


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def _now() -> datetime:
    return datetime.now(UTC)


class KeyBook:
    """The bucket of keys, as the operator sees it. `entries` of one key id are several after a rotation."""

    def __init__(
        self,
        bucket: KeyValue,
        read_all: Callable[[], AsyncGenerator[BucketEntry, None]],
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._bucket = bucket
        self._read_all = read_all
        self._now = now

    async def create(
        self,
        *,
        tenant_id: str,
        team: str,
        name: str,
        limits: LimitRule = NO_LIMITS,
        models: tuple[str, ...] = (),
    ) -> tuple[str, KeyEntry]:
        """A new key and its entry. The key is nowhere else: show it now or never."""
        key = new_key()
        entry = KeyEntry(
            key_id=f"key_{secrets.token_hex(6)}",
            tenant_id=tenant_id,
            team=team,
            name=name,
            created_at=self._stamp(),
            limits=limits,
            models=models,
        )
        await self._put(key_hash(key), entry)
        return key, entry

    async def put_dev_key(self, key: str) -> None:
        """The development key, with the limits it had; one that an earlier start had is withdrawn."""
        current = key_hash(key)
        entries = await self._all()
        earlier = {digest: entry for digest, entry in entries.items() if entry.key_id == DEV_KEY_ID}
        for digest in earlier.keys() - {current}:
            await self._bucket.delete(digest)
        if current not in earlier or earlier[current].revoked:
            last = next(iter(earlier.values()), None)
            entry = KeyEntry(
                key_id=DEV_KEY_ID,
                tenant_id=DEV_TENANT,
                team="default",
                name="development key",
                created_at=self._stamp(),
                limits=last.limits if last else NO_LIMITS,
            )
            await self._put(current, entry)

    async def list(self) -> list[KeyEntry]:
        """The oldest first."""
        entries = await self._all()
        return sorted(entries.values(), key=lambda entry: (str(entry.created_at), entry.key_id))

    async def revoke(self, key_id: str) -> KeyEntry:
        """The entry stays: the ledger's rows keep a name. Raises CliError for an unknown id."""
        return await self._change(key_id, lambda entry: {"revoked": True})

    async def set_limits(
        self, key_id: str, change: Callable[[LimitRule], LimitRule], models: tuple[str, ...] | None = None
    ) -> KeyEntry:
        """`models`: None leaves them as they are, an empty one allows all. Raises CliError."""

        def changed(entry: KeyEntry) -> dict[str, object]:
            limits: dict[str, object] = {"limits": change(entry.limits)}
            return limits if models is None else limits | {"models": models}

        return await self._change(key_id, changed)

    async def rotate(self, key_id: str, grace_seconds: float) -> tuple[str, KeyEntry]:
        """A new key with the same id and limits; the old one is valid for so long yet. Raises CliError."""
        until = self._now().timestamp() + grace_seconds

        def expiring(entry: KeyEntry) -> dict[str, object]:
            return {"expires_at": min(until, entry.expires_at or until)}

        valid = [entry for entry in (await self._of(key_id)).values() if not entry.revoked]
        if not valid:
            raise CliError(f"Key {key_id} is revoked: make a new one with `baton keys create`.")
        newest = max(valid, key=lambda entry: str(entry.created_at))
        key = new_key()
        entry = newest.model_copy(update={"created_at": self._stamp(), "expires_at": None})
        await self._put(key_hash(key), entry)
        await self._change(key_id, expiring, but=key_hash(key))
        return key, entry

    async def _change(
        self, key_id: str, change: Callable[[KeyEntry], dict[str, object]], but: str = ""
    ) -> KeyEntry:
        """All entries of the key id but one. Returns the last one changed."""
        found: KeyEntry | None = None
        for digest in await self._of(key_id):
            if digest != but:
                found = await self._rewrite(digest, change)
        assert found
        return found

    async def _rewrite(self, digest: str, change: Callable[[KeyEntry], dict[str, object]]) -> KeyEntry:
        """Never over what somebody else wrote meanwhile: a key that was revoked stays so."""
        while True:
            found = await self._bucket.get(digest)
            entry = KeyEntry.decode(found.value or b"")
            changed = entry.model_copy(update=change(entry))
            try:
                await self._bucket.update(digest, changed.encode(), last=found.revision)
            except nats.js.errors.KeyWrongLastSequenceError:
                continue
            return changed

    async def _of(self, key_id: str) -> dict[str, KeyEntry]:
        found = {digest: entry for digest, entry in (await self._all()).items() if entry.key_id == key_id}
        if not found:
            raise CliError(f"No key {key_id!r}: `baton keys list` shows them.")
        return found

    async def _put(self, digest: str, entry: KeyEntry) -> None:
        await self._bucket.put(digest, entry.encode())

    def _stamp(self) -> str:
        return self._now().isoformat(timespec="seconds")

    async def _all(self) -> dict[str, KeyEntry]:
        entries: dict[str, KeyEntry] = {}
        async for entry in self._read_all():
            try:
                entries[entry.name] = KeyEntry.decode(entry.value or b"")
            except MalformedMessage:
                continue  # not ours to judge or to remove
        return entries


@asynccontextmanager
async def open_key_book(operator: Operator) -> AsyncGenerator[KeyBook]:
    """Raises CliError if the bus does not answer."""
    async with operator_bus(operator) as client:
        yield await key_book(client)


async def key_book(client: Client) -> KeyBook:
    jetstream = client.jetstream()
    bucket = await open_bucket(jetstream, BUCKET_KEYS)
    return KeyBook(bucket, lambda: read_bucket(jetstream, BUCKET_KEYS))
