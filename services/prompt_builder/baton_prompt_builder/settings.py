"""The prompt builder's settings, read once."""

from __future__ import annotations

from importlib.util import find_spec

from pydantic import Field, SecretStr, field_validator

from baton_common.settings import ServiceSettings


class Settings(ServiceSettings):
    system_prompt: str = "You are a helpful assistant."
    """Used where the client sends no system message of its own. Longer ones were tried: with them the default
    model, which is small, answers "What is the capital of France?" in French and wrongly."""
    context_tokens: int = Field(default=8192, ge=256)
    """What the prompt and the answer may take together; older turns are dropped to fit."""
    answer_tokens: int = Field(default=1024, ge=1)
    """Kept free for the answer where the client names no max_tokens."""
    characters_per_token: float = Field(default=3.5, gt=0)

    max_handoff_bytes: int = Field(default=8 * 1024 * 1024 - 8 * 1024, ge=1024)
    """What fits into one message of the bus; NATS closes the connection on more."""

    books_seconds: float = Field(default=2.0, gt=0)
    embed_seconds: float = Field(default=0.5, gt=0)
    """A question waits this long for its vector, then it is searched for by its words alone."""
    search_seconds: float = Field(default=1.0, gt=0)

    qdrant_url: str = ""
    """A Qdrant server; empty: Qdrant's core in this process, in BATON_HOME/store/documents."""
    qdrant_api_key: SecretStr = SecretStr("")
    qdrant_collection: str = "baton_documents"
    vector_size: int = Field(default=384, ge=1)

    @field_validator("qdrant_url")
    @classmethod
    def _client_is_installed(cls, url: str) -> str:
        if url and find_spec("qdrant_client") is None:
            raise ValueError("qdrant-client is missing: pip install 'baton-prompt-builder[server]'")
        return url

    shared_tenant: str = "baton:shared"
    """Owner of the documents that every tenant may see."""
    seed_documents: bool = True
    """False: start without the documents about Baton itself."""

    retrieval_chunks: int = Field(default=3, ge=1, le=20)
    retrieval_characters: int = Field(default=3000, ge=200)
    retrieval_candidates: int = Field(default=20, ge=1)
    """Hits taken from each branch before they are fused."""
    min_cosine: float = Field(default=0.40, ge=-1, le=1)
    min_cosine_with_words: float = Field(default=0.28, ge=-1, le=1)
    min_word_share: float = Field(default=0.75, ge=0, le=1)
    min_word_share_alone: float = Field(default=0.6, ge=0, le=1)
    min_cosine_of_chunk: float = Field(default=0.25, ge=-1, le=1)
    """When `auto` uses documents; see `ranking.Rule`. Measured with MiniLM on the seed documents."""

    ingest_characters: int = Field(default=2_000_000, ge=1000)
    """Largest document."""
    ingest_embed_seconds: float = Field(default=20.0, ge=0)
    """How long an ingest waits for vectors; what is not done by then is done in the background."""
