"""Whose key is it: the API keys in memory, by the hash of each.

Owns the map from key to tenant. Never sees where it is stored, and keeps no key as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Mapping

from pydantic import ValidationError

from baton_common.errors import RequestFailed
from baton_contracts.base import WireModel
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody

log = logging.getLogger(__name__)

DEV_TENANT = Tenant(tenant_id="default", team="default", key_id="dev")


class KeyEntry(WireModel):
    """A value of the bucket; its name there is the SHA-256 of the key, in hex."""

    key_id: str
    tenant_id: str
    team: str = "default"
    name: str = ""
    created_at: float | str = 0.0
    revoked: bool = False


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class KeyRing:
    """`synced` is False until the bucket was read once: until then an unknown key is nobody's fault."""

    def __init__(self, dev_key: str) -> None:
        self._dev_hash = key_hash(dev_key) if dev_key else ""
        self._tenants: dict[str, Tenant] = {}
        self._revoked: set[str] = set()
        self.first_sync = asyncio.Event()

    @property
    def synced(self) -> bool:
        return self.first_sync.is_set()

    def put(self, hashed: str, value: bytes) -> None:
        """A new or changed entry. One that can't be read counts as revoked: better closed than open."""
        self.remove(hashed)
        try:
            entry = KeyEntry.model_validate_json(value)
            tenant = Tenant(tenant_id=entry.tenant_id, team=entry.team, key_id=entry.key_id)
        except ValidationError as error:
            log.error("key entry %s… can't be read: %s", hashed[:8], error.errors()[0]["msg"])
            self._revoked.add(hashed)
            return
        if entry.revoked:
            self._revoked.add(hashed)
        else:
            self._tenants[hashed] = tenant

    def remove(self, hashed: str) -> None:
        self._tenants.pop(hashed, None)
        self._revoked.discard(hashed)

    def replace(self, entries: Mapping[str, bytes]) -> None:
        """The whole bucket as it is now."""
        for hashed in {*self._tenants, *self._revoked} - entries.keys():
            self.remove(hashed)
        for hashed, value in entries.items():
            self.put(hashed, value)
        self.first_sync.set()

    def __len__(self) -> int:
        return len(self._tenants)

    def tenant_of(self, authorization: str | None) -> Tenant:
        """Raises RequestFailed: 401, or 503 while the bucket was never read."""
        scheme, _, key = (authorization or "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            raise _denied("No API key was given. Send it as 'Authorization: Bearer KEY'.")
        hashed = key_hash(key)
        if tenant := self._tenants.get(hashed):
            return tenant
        if hashed in self._revoked:
            raise _denied("This API key was revoked. Use another one.")
        if self._dev_hash and hmac.compare_digest(hashed, self._dev_hash):
            return DEV_TENANT
        if not self.synced:
            text = "The API keys are not loaded yet. Try again shortly."
            error = ErrorBody(code="bus_unavailable", message=text, stop="edge_api", retry_after_seconds=1)
            raise RequestFailed(error)
        raise _denied("This API key is not known. Check it with `baton keys`.")


def _denied(text: str) -> RequestFailed:
    return RequestFailed.because("invalid_api_key", text)
