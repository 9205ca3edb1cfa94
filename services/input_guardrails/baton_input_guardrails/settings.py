"""The input guardrails' settings, read once."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from baton_common.settings import ServiceSettings


class Settings(ServiceSettings):
    vault_key: SecretStr
    """Base64 of 32 bytes; the same as the output guardrails'."""
    guard_config: Path | None = None
    """YAML with an `input:` section; None: the one in this package."""
    guard_model_path: Path | None = None
    """Folder of a spaCy model with an `ner` component; None: the English one that its package carries."""
    guard_threads: int = Field(default=2, ge=1)
    """Threads that search for personal data; a long text in one doesn't stop a short one in another."""
    guard_seconds: float = Field(default=20.0, gt=0)
    """An analysis that takes longer counts as failed."""
    guard_cache_texts: int = Field(default=4096, ge=0)
    """Texts whose finds are remembered (by hash, without the text): history comes again with every turn."""
