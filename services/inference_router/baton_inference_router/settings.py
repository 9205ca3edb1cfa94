"""What the router reads from its environment."""

from __future__ import annotations

from pydantic import Field

from baton_common.settings import ServiceSettings
from baton_contracts.heartbeats import REPLICA_STALE_AFTER_SECONDS


class Settings(ServiceSettings):
    router_dispatch_seconds: float = Field(default=1.5, gt=0)
    """How long a replica may take to accept or refuse."""
    router_cooldown_seconds: float = Field(default=5.0, ge=0)
    """How long a replica that did not answer a dispatch gets nothing."""
    router_stale_seconds: float = Field(default=REPLICA_STALE_AFTER_SECONDS, gt=0)
    """A replica silent for this long counts as gone."""
    router_prefix_aware: bool = True
    """Send requests where their beginning is cached. Off: by load alone, and nobody is asked for tokens."""
    router_tokens_seconds: float = Field(default=0.25, gt=0)
    """How long a prompt's tokens are waited for before load alone decides."""
    router_index_blocks: int = Field(default=2_000_000, ge=0)
    """Cached blocks of all replicas that are remembered, about 70 bytes each."""
    router_ramp_seconds: float = Field(default=10.0, ge=0)
    """In this time a new replica grows to its full share."""
    router_imbalance_requests: int = Field(default=4, ge=0)
    """A replica with so many requests more than the least busy (and half as many again) gets nothing for its
    cache."""
