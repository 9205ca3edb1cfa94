"""API keys: made here, shown once, kept on the bus as a SHA-256 only.

The bucket's keys are the digests, its values who a key stands for; the edge watches it. A key is 32 random
bytes, so a plain digest can't be guessed from.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from baton_cli.errors import CliError
from baton_contracts.permissions import inbox_prefix
from baton_contracts.subjects import BUCKET_KEYS

PREFIX = "sk-baton-"
DEV_KEY_ID = "dev"
DEV_TENANT = "default"


@dataclass(frozen=True)
class KeyRecord:
    """What the bus knows of a key: everything but the key."""

    key_id: str
    """Public name, for lists, logs and the ledger."""
    tenant_id: str
    team: str
    name: str
    created_at: str
    """UTC, ISO 8601."""
    revoked: bool = False

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, payload: bytes) -> KeyRecord:
        """Raises ValueError for anything that is not a record."""
        values = json.loads(payload)
        known = {field.name for field in fields(cls)}
        try:
            return cls(**{name: value for name, value in values.items() if name in known})
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not a key record: {error}") from error


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True)
class Operator:
    """How the operator reaches the bus; $BATON_HOME/run/operator.json."""

    nats_url: str
    user: str
    password: str

    def encode(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def decode(cls, text: str) -> Operator:
        values = json.loads(text)
        return cls(values["nats_url"], values["user"], values["password"])


def _now() -> datetime:
    return datetime.now(UTC)


class KeyBook:
    """The bucket of keys, as the operator sees it."""

    def __init__(self, bucket: KeyValue, now: Callable[[], datetime] = _now) -> None:
        self._bucket = bucket
        self._now = now

    async def create(self, *, tenant_id: str, team: str, name: str) -> tuple[str, KeyRecord]:
        """A new key and its record. The key is nowhere else: show it now or never."""
        key = new_key()
        return key, await self.put(
            key, key_id=f"key_{secrets.token_hex(6)}", tenant_id=tenant_id, team=team, name=name
        )

    async def put(self, key: str, *, key_id: str, tenant_id: str, team: str, name: str) -> KeyRecord:
        record = KeyRecord(key_id, tenant_id, team, name, self._now().isoformat(timespec="seconds"))
        await self._bucket.put(hash_key(key), record.encode())
        return record

    async def put_dev_key(self, key: str) -> None:
        """The development key; one that an earlier start had is withdrawn."""
        current = hash_key(key)
        records = await self._all()
        for digest, record in records.items():
            if record.key_id == DEV_KEY_ID and digest != current:
                await self._bucket.delete(digest)
        if current not in records or records[current].revoked:
            await self.put(
                key, key_id=DEV_KEY_ID, tenant_id=DEV_TENANT, team="default", name="development key"
            )

    async def list(self) -> list[KeyRecord]:
        """The oldest first."""
        records = await self._all()
        return sorted(records.values(), key=lambda record: (record.created_at, record.key_id))

    async def revoke(self, key_id: str) -> KeyRecord:
        """The record stays: the ledger's rows keep a name. Raises CliError for an unknown id."""
        for digest, record in (await self._all()).items():
            if record.key_id == key_id:
                revoked = replace(record, revoked=True)
                await self._bucket.put(digest, revoked.encode())
                return revoked
        raise CliError(f"No key {key_id!r}: `baton keys list` shows them.")

    async def _all(self) -> dict[str, KeyRecord]:
        try:
            digests = await self._bucket.keys()
        except nats.js.errors.NoKeysError:
            return {}
        records: dict[str, KeyRecord] = {}
        for digest in digests:
            entry = await self._bucket.get(digest)
            try:
                records[digest] = KeyRecord.decode(entry.value or b"")
            except ValueError:
                continue  # not ours to judge or to remove
        return records


@asynccontextmanager
async def open_key_book(operator: Operator) -> AsyncGenerator[KeyBook]:
    """Raises CliError if the bus does not answer."""
    unreachable = CliError(f"The bus at {operator.nats_url} does not answer. Is Baton running (`make up`)?")

    async def ignore(_: Exception) -> None:
        """The call that failed says so itself."""

    client = Client()
    try:
        await client.connect(
            operator.nats_url,
            user=operator.user,
            password=operator.password,
            name="baton keys",
            inbox_prefix=inbox_prefix(operator.user).encode(),
            connect_timeout=2,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            allow_reconnect=False,
            error_cb=ignore,
        )
    except (OSError, nats.errors.Error, TimeoutError) as error:
        await client.close()
        raise unreachable from error
    try:
        yield KeyBook(await _bucket(client.jetstream()))
    except (nats.errors.Error, nats.js.errors.APIError, TimeoutError) as error:
        raise CliError(f"The bus at {operator.nats_url} refused: {error or type(error).__name__}") from error
    finally:
        await client.close()


async def _bucket(jetstream: JetStreamContext) -> KeyValue:
    try:
        return await jetstream.key_value(BUCKET_KEYS)
    except nats.js.errors.BucketNotFoundError:
        return await jetstream.create_key_value(bucket=BUCKET_KEYS)
