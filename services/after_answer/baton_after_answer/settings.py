"""What after_answer reads from its environment."""

from __future__ import annotations

from pydantic import Field, SecretStr
from sqlalchemy.engine import URL, make_url

from baton_common.settings import ServiceSettings


class Settings(ServiceSettings):
    database_url: SecretStr = SecretStr("")
    """`postgresql://user:password@host/name` or `sqlite:///path`; empty: SQLite in BATON_HOME."""
    after_batch: int = Field(default=256, ge=1, le=1000)
    """Records of one transaction, at most."""
    after_ack_wait_seconds: float = Field(default=5.0, gt=0)
    """A record that was taken but not acknowledged within this is delivered again: how long the records
    that a killed process held are out of sight."""
    after_retry_seconds: float = Field(default=2.0, gt=0)
    """Records wait this long for another try when the database is away."""
    books_barrier_seconds: float = Field(default=1.0, gt=0)
    """How long a question waits for the records that were stored before it."""
    responses_days: float = Field(default=30.0, gt=0)
    """So long responses are kept."""

    def resolved_database_url(self) -> URL:
        """With psycopg 3 for PostgreSQL, whatever driver the URL leaves open."""
        raw = self.database_url.get_secret_value()
        url = make_url(raw) if raw else URL.create("sqlite", database=str(self.home / "books.sqlite"))
        if url.drivername in ("postgres", "postgresql"):
            return url.set(drivername="postgresql+psycopg")
        return url
