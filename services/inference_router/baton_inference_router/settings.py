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
