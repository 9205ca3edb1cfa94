"""API keys as they lie in the bucket `baton_keys`: under the SHA-256 of each key, who it stands for.

A key is 32 random bytes, so a plain digest can't be guessed from. `baton keys` writes, edges watch.
"""

from __future__ import annotations

import hashlib

from pydantic import Field

from baton_contracts.base import WireModel
from baton_contracts.limits import LimitRule


class KeyEntry(WireModel):
    """Everything of a key but the key. After a rotation two entries have the same `key_id`: the new key, and
    the old one until it expires."""

    key_id: str = Field(description="Public name, for lists, logs and the ledger.")
    tenant_id: str
    team: str = "default"
    name: str = ""
    created_at: float | str = Field(default="", description="UTC, ISO 8601.")
    revoked: bool = False
    expires_at: float | None = Field(default=None, description="Unix time in seconds.")
    limits: LimitRule = LimitRule()
    models: tuple[str, ...] = Field(default=(), description="That it may ask for; empty: all.")


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
