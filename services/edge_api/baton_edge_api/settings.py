"""What the edge reads from its environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from baton_common.settings import ServiceSettings


class EdgeSettings(ServiceSettings):
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    tls_cert: Path | None = None
    tls_key: Path | None = None

    dev_key: SecretStr = SecretStr("")
    """Accepted beside the keys of the bucket, so that a first start needs no other tool."""

    allowed_origins: tuple[str, ...] = ()
    """Of pages whose scripts may call the API from a browser: `["https://chat.example"]`, or `["*"]`."""

    strict: bool = False
    """Unknown request fields are refused instead of named in a warning header."""

    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    max_text_chars: int = Field(default=1_000_000, ge=1)
    """All message text of one request together."""
    max_handoff_bytes: int = Field(default=8 * 1024 * 1024 - 8 * 1024, ge=1024)
    """NATS closes the connection on a payload at its limit plus headers: stay below it."""
    default_max_tokens: int | None = Field(default=None, ge=1)
    """What an answer without a bound may have, as the engines hold it: reserved for a key's first answers.
    Else the catalog's word on the model, else 1024."""
    plain_gateway: bool = False
    """Requests go straight to the LLM gateway and answers straight back: no prompt builder, no guardrails, no
    replicas of our own. Keys, limits, cache and ledger stay."""
    max_in_flight: int = Field(default=512, ge=1)

    header_timeout: float = Field(default=10.0, gt=0)
    """Seconds for a request's headers to arrive."""
    body_timeout: float = Field(default=30.0, gt=0)
    """Seconds for the whole body; each piece has a third of it."""
    keep_alive_seconds: float = Field(default=15.0, gt=0)
    """Silence in a stream after which a comment is sent."""
    idle_timeout: float = Field(default=120.0, gt=0)
    """Silence from the relay after which the request is given up."""
    write_timeout: float = Field(default=30.0, gt=0)
    """A client that takes nothing for so long is given up."""
    request_timeout: float = Field(default=300.0, gt=0)
    """The deadline of a request."""
    query_timeout: float = Field(default=10.0, gt=0)
    """For questions to the books and the console."""
    ingest_timeout: float = Field(default=120.0, gt=0)
    embed_timeout: float = Field(default=60.0, gt=0)
    """For each question to the embedder; a request of many texts asks several."""
    embedding_aliases: tuple[str, ...] = ("embedding",)
    """Names by which the embedder's model can be asked for beside its own."""

    max_file_bytes: int = Field(default=100 * 1024 * 1024, ge=1024)
    """Of one uploaded file."""
    max_tenant_file_bytes: int = Field(default=1024**3, ge=1024)
    """Of all files of one tenant."""
    max_store_bytes: int = Field(default=4 * 1024**3, ge=1024**2)
    """Of all files; set when the store is made."""
    max_uploads: int = Field(default=8, ge=1)
    """At once, and as many downloads; others wait for their turn, a while."""
    max_tenant_uploads: int = Field(default=3, ge=1)
    """Of one tenant, of those."""
    upload_timeout: float = Field(default=600.0, gt=0)
    max_batch_lines: int = Field(default=50_000, ge=1)
    max_tenant_batches: int = Field(default=100, ge=1)
    """Of one tenant, not over yet."""
    batch_lines_at_once: int = Field(default=32, ge=1)
    """Lines of all batches under way at most, however much room there is."""
    batch_window_seconds: int = Field(default=24 * 3600, ge=1)
    background_seconds: float = Field(default=3600.0, gt=0)
    """From asking for a response in the background to its end, waiting for room included."""
    max_background: int = Field(default=256, ge=1)
    """Responses made in the background at once, waiting ones included."""
    max_tenant_background: int = Field(default=64, ge=1)
    """Of one tenant. As many may be followed at once."""
    background_events_bytes: int = Field(default=512 * 1024**2, ge=1024**2)
    """Of the events of all streams of them; set when their bucket is made."""
    record_seconds: float = Field(default=1.0, gt=0)
    """How long the end of an answer waits for its conversation to be stored; then that goes on behind it."""
