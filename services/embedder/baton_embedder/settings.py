"""The embedder's settings, read once."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from baton_common.settings import ServiceSettings


class Settings(ServiceSettings):
    embedder_model_path: Path | None = None
    """A Hugging Face folder; None: the MiniLM weights that their package carries."""
    embedder_max_tokens: int = Field(default=256, ge=8, le=8192)
    """Longer texts are cut, or refused where the question says `whole`."""
    embedder_threads: int = Field(default=1, ge=1)
    embedder_tokens_per_step: int = Field(default=256, ge=16)
    """Tokens in one batch, padding included: bounds how long a short question waits behind a long one. On one
    thread larger batches bring nothing: the time grows with the tokens."""
    embedder_concurrency: int = Field(default=32, ge=1)
    """Questions whose texts may share batches."""
    embedder_waiting: int = Field(default=64, ge=0)
    embedder_answer_seconds: float = Field(default=30.0, gt=0)
