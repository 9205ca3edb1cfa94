"""What the gateway reads from its environment."""

from __future__ import annotations

from pydantic import Field

from baton_common.settings import ServiceSettings


class Settings(ServiceSettings):
    gateway_concurrency: int = Field(default=1024, ge=1)
    """Requests held at once: each is held until its answer has ended."""
    max_attempts: int = Field(default=3, ge=1, le=10)
    stall_seconds: float = Field(default=30.0, gt=0)
    """An engine silent for this long after its first token has failed."""
    long_question_characters: int = Field(default=600, ge=1)
    """`auto` gives a longer question to the large model."""
    cache_max_mb: float = Field(default=64.0, ge=0)
    """0 turns the response cache off."""
    cache_ttl_seconds: float = Field(default=600.0, gt=0)
    cache_sampled: bool = False
    """True: also answers that were sampled without a seed are given again."""
    semantic_max_mb: float = Field(default=32.0, ge=0)
    """What may be kept to know questions again that are phrased otherwise, for tenants that want it."""
    semantic_embed_seconds: float = Field(default=0.15, gt=0)
    """An embedder slower than this is not waited for."""
    policy_version: str = "1"
    """Part of every cache key: change it, and no answer from before is given again."""
