"""Request/reply questions beside the relay: embeddings, ingestion, the books, the console's pages."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from baton_contracts.base import WireModel
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import RequestId
from baton_contracts.prompt import ToolCall
from baton_contracts.records import ResponseStatus, StoredMessage, UsageRecord

_TokenIds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]

MAX_TEXTS = 256
"""Of one EmbedQuery."""
MAX_REQUEST_IDS = 128
"""Of one BooksQuery."""


UsageBy = Literal["key", "team", "model", "day"]


class EmbedQuery(WireModel):
    """On `embed.RID`, queue group embedder. Texts, or the same as ids of the embedder's own tokenizer."""

    texts: tuple[str, ...] = Field(default=(), max_length=MAX_TEXTS)
    token_ids: tuple[_TokenIds, ...] = Field(default=(), max_length=MAX_TEXTS)
    whole: bool = Field(default=False, description="True: a text that is too long is refused, not cut.")
    first: int = Field(
        default=0, ge=0, description="The place of its first text in the client's request: refusals name it."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.texts) == bool(self.token_ids):
            raise ValueError("either texts or token_ids must be given")
        return self


class EmbedReply(WireModel):
    model: str = ""
    vectors: tuple[tuple[float, ...], ...] = Field(
        default=(), description="One unit vector a text, in order."
    )
    prompt_tokens: int = 0
    error: ErrorBody | None = None


class IngestQuery(WireModel):
    """On `ingest.RID`, to the process that owns the document store. One document; the same content
    again adds nothing, an edited one replaces only the chunks that changed."""

    tenant_id: str
    source: str = Field(
        min_length=1, max_length=512, description="Name of the document; the identity for replacement."
    )
    media_type: Literal["text/plain", "text/markdown", "text/html"] = "text/plain"
    text: str = Field(description="Empty: remove the document.")


class IngestReply(WireModel):
    chunks: int = 0
    added: int = 0
    removed: int = 0
    error: ErrorBody | None = None


class BooksQuery(WireModel):
    """On `books.RID`, queue group after_answer. Answers include every record stored in AFTER before the
    question came (read your own writes). `delete_response` answers with what it deleted."""

    kind: Literal["conversation", "usage", "usage_sums", "response", "response_chain", "delete_response"]
    tenant_id: str
    conversation_id: str | None = None
    request_id: RequestId | None = None
    more_request_ids: tuple[RequestId, ...] = Field(
        default=(),
        max_length=MAX_REQUEST_IDS - 1,
        description="Of usage: rows of these too. A completion of several prompts is several requests.",
    )
    by: tuple[UsageBy, ...] = Field(
        default=(), max_length=4, description="Of usage_sums: what is told apart."
    )
    since: float = Field(
        default=0, ge=0, description="Of usage and usage_sums: rows that ended from this Unix time on."
    )
    until: float | None = Field(
        default=None, description="Of usage and usage_sums: and before this one; None: now."
    )
    key_id: str | None = Field(default=None, max_length=128, description="Of usage_sums: of this key only.")
    team: str | None = Field(default=None, max_length=128, description="Of usage_sums: of this team only.")
    model: str | None = Field(default=None, description="Of usage_sums: of this model only.")
    page: str | None = Field(
        default=None, max_length=64, description="Of usage_sums: `next_page` of the answer before."
    )
    response_id: str | None = Field(default=None, max_length=64, description="Of the last three kinds.")


class UsageSum(WireModel):
    """Ledger rows added up. What was not told apart is None."""

    key_id: str | None = None
    team: str | None = None
    model: str | None = None
    day: str | None = Field(default=None, description="2026-11-29, by UTC.")
    requests: int = Field(ge=0)
    attempts: int = Field(ge=0, description="Ledger rows.")
    prompt_tokens: int = Field(ge=0)
    cached_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    cost_picos: int = Field(ge=0, description="Pico-dollars.")


class StoredTurn(WireModel):
    request_id: RequestId
    model: str
    asked: tuple[StoredMessage, ...]
    answer: str
    tool_calls: tuple[ToolCall, ...] = ()
    cut_short: bool
    created_at: float


class StoredResponse(WireModel):
    """See `ResponseRecord`."""

    response_id: str
    previous_response_id: str | None = None
    status: ResponseStatus
    input: str
    output: str
    body: str = Field(default="", description="Only where one response was asked for.")


class BooksReply(WireModel):
    turns: tuple[StoredTurn, ...] = ()
    responses: tuple[StoredResponse, ...] = Field(
        default=(),
        description="The one asked for, or it and those before it, newest first; ask for the last one's "
        "previous one to get more. None: there is none, or it was deleted.",
    )
    usage: tuple[UsageRecord, ...] = ()
    sums: tuple[UsageSum, ...] = Field(
        default=(), description="By day if days are told apart, else dearest first."
    )
    next_page: str | None = Field(
        default=None, description="Of sums: there are more; ask again with this `page`."
    )
    error: ErrorBody | None = None


class ConsoleQuery(WireModel):
    """On `console.RID`, queue group trace_console: a page (no key needed) or a trace (`tenant` set)."""

    path: str = Field(max_length=512)
    tenant: Tenant | None = None


class ConsoleReply(WireModel):
    status: int = 200
    media_type: str = "application/json"
    body: str = ""
    error: ErrorBody | None = None
