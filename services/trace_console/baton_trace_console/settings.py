"""What trace_console reads from its environment."""

from __future__ import annotations

from pydantic import Field

from baton_common.settings import ServiceSettings


class Settings(ServiceSettings):
    trace_days: float = Field(default=7.0, gt=0)
    """Spans older than this are dropped."""
    trace_max_bytes: int = Field(default=512 * 1024 * 1024, ge=1024 * 1024)
    """Space of all spans together; the oldest make room."""
