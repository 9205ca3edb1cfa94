"""Whose key is it, and what may it: the API keys in memory, by the hash of each.

Owns the map from key to tenant, and the limits that came with it. Never sees where it is stored, and keeps no
key as it is.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pydantic import ValidationError
from starlette.types import Scope

from baton_common.errors import RequestFailed
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import LimitRule
from baton_edge_api.exchange import header, inside_of

log = logging.getLogger(__name__)

DEV_TENANT = Tenant(tenant_id="default", team="default", key_id="dev")


@dataclass(frozen=True)
class _Valid:
    tenant: Tenant
    entry: KeyEntry


class KeyRing:
    """`synced` is False until the bucket was read once: until then an unknown key is nobody's fault."""

    def __init__(self, dev_key: str, wall: Callable[[], float] = time.time) -> None:
        self._dev_hash = key_hash(dev_key) if dev_key else ""
        self._wall = wall
        self._seen: dict[str, bytes] = {}
        """Entries as they were last read: those that stay the same are not read again."""
        self._valid: dict[str, _Valid] = {}
        self._revoked: set[str] = set()
        self._rules: dict[str, LimitRule] = {}
        self._models: dict[str, frozenset[str]] = {}
        self.first_sync = asyncio.Event()

    @property
    def synced(self) -> bool:
        return self.first_sync.is_set()

    def put(self, hashed: str, value: bytes) -> None:
        """A new or changed entry. One that can't be read counts as revoked: better closed than open."""
        if self._seen.get(hashed) == value:
            return
        self.remove(hashed)
        self._seen[hashed] = value
        try:
            entry = KeyEntry.model_validate_json(value)
            tenant = Tenant(tenant_id=entry.tenant_id, team=entry.team, key_id=entry.key_id)
        except ValidationError as error:
            log.error("key entry %s… can't be read: %s", hashed[:8], error.errors()[0]["msg"])
            self._revoked.add(hashed)
            return
        if entry.revoked:
            self._revoked.add(hashed)
            return
        self._valid[hashed] = _Valid(tenant, entry)
        self._learn(entry)

    def remove(self, hashed: str) -> None:
        self._seen.pop(hashed, None)
        self._revoked.discard(hashed)
        if removed := self._valid.pop(hashed, None):
            key_id = removed.entry.key_id
            self._rules.pop(key_id, None)
            self._models.pop(key_id, None)
            for other in self._valid.values():
                if other.entry.key_id == key_id:
                    self._learn(other.entry)

    def _learn(self, entry: KeyEntry) -> None:
        """Of an old and a new key the limits are the same; if not, those of the one without an end count."""
        if entry.expires_at is not None and entry.key_id in self._rules:
            return
        self._rules[entry.key_id] = entry.limits
        self._models[entry.key_id] = frozenset(entry.models)

    def rule_of(self, key_id: str) -> LimitRule | None:
        return self._rules.get(key_id)

    def models_of(self, key_id: str) -> frozenset[str]:
        """That a key may ask for; empty: all."""
        return self._models.get(key_id) or frozenset()

    def replace(self, entries: Mapping[str, bytes]) -> None:
        """The whole bucket as it is now."""
        for hashed in {*self._valid, *self._revoked} - entries.keys():
            self.remove(hashed)
        for hashed, value in entries.items():
            self.put(hashed, value)
        self.first_sync.set()

    def tenant_of_key(self, key_id: str) -> str | None:
        """Whose it is; None: no key has this id."""
        tenants = (valid.tenant for valid in self._valid.values())
        return next((tenant.tenant_id for tenant in tenants if tenant.key_id == key_id), None)

    def tenant_ids(self) -> Collection[str]:
        return {DEV_TENANT.tenant_id, *(valid.tenant.tenant_id for valid in self._valid.values())}

    def __len__(self) -> int:
        return len(self._valid)

    def caller_of(self, scope: Scope) -> Tenant:
        """Whose request it is: of one that the edge makes of itself, whom it is made for. Raises as
        `tenant_of`."""
        inside = inside_of(scope)
        return inside.tenant if inside else self.tenant_of(header(scope, b"authorization"))

    def tenant_of(self, authorization: str | None) -> Tenant:
        """Raises RequestFailed: 401, or 503 while the bucket was never read."""
        scheme, _, key = (authorization or "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            raise _denied("No API key was given. Send it as 'Authorization: Bearer KEY'.")
        hashed = key_hash(key)
        if found := self._valid.get(hashed):
            if found.entry.expires_at is not None and self._wall() >= found.entry.expires_at:
                raise _denied("This API key was replaced by a new one, and its time is over.")
            return found.tenant
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
