"""The HTTP form of what Baton's own paths give, those that OpenAI's API does not have: health, traces,
conversations, usage, documents.

As in `openai_answers` the edge and the console build plain JSON objects; these models are their description.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.openai_answers import ErrorAnswer
from baton_contracts.openai_base import HttpModel
from baton_contracts.queries import StoredTurn
from baton_contracts.records import UsageRecord
from baton_contracts.spans import AttributeValue
from baton_contracts.subjects import Service


class Alive(HttpModel):
    status: Literal["alive"]


class Ready(HttpModel):
    status: Literal["ready"]
    missing: list[str] = Field(max_length=0)


class NotReady(ErrorAnswer):
    status: Literal["not ready"]
    missing: list[str] = Field(min_length=1, description="Stops without which no question is answered.")


class Conversation(HttpModel):
    object: Literal["conversation"]
    id: str
    turns: list[StoredTurn]


class UsageRows(HttpModel):
    """Of one request: a row for each attempt."""

    object: Literal["list"]
    data: list[UsageRecord]


class CostedSum(HttpModel):
    """What was not told apart is left out."""

    key_id: str | None = None
    team: str | None = None
    model: str | None = None
    day: str | None = Field(default=None, description="2026-11-29, by UTC.")
    requests: int = Field(ge=0)
    attempts: int = Field(ge=0, description="Ledger rows.")
    prompt_tokens: int = Field(ge=0)
    cached_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    cost_usd: str = Field(description="Decimal.")


class UsageSums(HttpModel):
    """By day if days are told apart, else dearest first."""

    object: Literal["list"]
    data: list[CostedSum]
    has_more: bool
    next_page: str | None = Field(description="For `page`, if there are more.")


class TraceSummary(HttpModel):
    """Times in milliseconds; null where no stop has told."""

    status: Literal["ok", "error", "cancelled", "running", "incomplete"]
    started_at: float = Field(description="Unix time in seconds.")
    total_ms: float
    ttft_ms: float | None
    tpot_ms: float | None
    model: str | None
    replica: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: str | None = Field(description="Decimal, of all attempts together.")
    finish_reason: str | None
    cache: Literal["exact", "semantic"] | None = Field(description="Which kind of cache the answer is from.")
    error: str | None = Field(description="Code of the error, or why it was cancelled.")
    error_stop: str | None = Field(description="The service that gave up.")
    stops: list[int]
    stop_ms: dict[str, float] = Field(description="How long each stop had the request in its own hands.")
    unexplained_gap_ms: float


class ListedTrace(HttpModel):
    request_id: str
    summary: TraceSummary


class TraceList(HttpModel):
    """The newest first, each trace on one page. Each page looks back so far: it may be empty and yet have a
    next one."""

    object: Literal["list"]
    data: list[ListedTrace]
    has_more: bool
    next_page: str | None = Field(description="For `page`, if there may be more.")


class TraceSpan(HttpModel):
    stop: int = Field(ge=1, le=10)
    stop_name: str
    service: Service
    instance: str
    name: str
    start_ms: float = Field(description="From the start of the trace.")
    duration_ms: float
    status: Literal["ok", "error", "cancelled"]
    span_id: str
    parent_span_id: str | None
    attributes: dict[str, AttributeValue]


class TraceGap(HttpModel):
    start_ms: float = Field(description="From the start of the trace.")
    duration_ms: float


class Trace(HttpModel):
    request_id: str
    summary: TraceSummary
    spans: list[TraceSpan]
    gaps: list[TraceGap] = Field(description="Stretches of over 1 ms in which no stop had it in hand.")


class DocumentDeleted(HttpModel):
    object: Literal["document.deleted"]
    source: str
    deleted: Literal[True]
    removed: int = Field(ge=0, description="Pieces that were searched.")
