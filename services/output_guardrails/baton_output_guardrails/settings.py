"""The output guardrails' settings, read once."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from baton_common.settings import ServiceSettings


class Settings(ServiceSettings):
    vault_key: SecretStr
    """Base64 of 32 bytes; the same as the input guardrails'."""
    guard_config: Path | None = None
    """YAML with an `output:` section; None: the one in this package."""
    output_guard_streams: int = Field(default=2048, ge=1)
    """Answers that stream through one process at once."""
    output_guard_cancel_seconds: float = Field(default=2.0, gt=0)
    """How long the engine's last word is awaited after a cancel."""
    output_guard_takeover_seconds: float = Field(default=6.0, gt=0)
    """How long a vanished engine's request waits for the gateway to go on elsewhere or give up."""
