"""After-answer records: what must outlive the answer. JetStream AFTER, work queue, explicit ack.

The key of each is (request_id, run_id, attempt): delivered twice, it is written once.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from baton_contracts.base import WireModel
from baton_contracts.envelope import Tenant
from baton_contracts.frames import FinishReason, Usage
from baton_contracts.identifiers import RequestId
from baton_contracts.prompt import Role, ToolCall

Outcome = Literal["finished", "cancelled", "error", "cache_hit", "migrated"]


class UsageRecord(WireModel):
    """One ledger row: one engine attempt or one cache hit. On `after.usage.RID`, from the gateway.

    The rows of one run add up to one bill: an attempt counts the tokens that it added to the answer, and the
    prompt counts on the last attempt. `migrated`: another attempt went on behind what this one had sent.
    """

    request_id: RequestId
    run_id: str = Field(pattern=r"^[0-9a-f]{8}$")
    attempt: int = Field(ge=1)
    tenant: Tenant
    model: str
    replica: str
    usage: Usage
    outcome: Outcome
    finish_reason: FinishReason | None = None
    error_code: str | None = None
    stand_in: bool = Field(
        default=False,
        description="Stored by the engine worker because the gateway that owned the attempt was lost. The "
        "gateway's own record takes its place.",
    )
    cost_picos: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="Pico-dollars (10⁻¹² USD). None: what the catalog says of the model, when it is stored.",
    )
    started_at: float = Field(description="Unix time in seconds.")
    ended_at: float


class StoredMessage(WireModel):
    role: Role
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class ConversationRecord(WireModel):
    """One exchange: what was asked and what was answered. On `after.conversation.RID`, from the edge."""

    kind: ClassVar[str] = "conversation"

    request_id: RequestId
    run_id: str = Field(pattern=r"^[0-9a-f]{8}$")
    conversation_id: str = Field(max_length=64)
    tenant: Tenant
    model: str
    asked: tuple[StoredMessage, ...] = Field(description="The new messages of this request, in order.")
    answer: str
    tool_calls: tuple[ToolCall, ...] = Field(default=(), description="Whole calls of the answer, in order.")
    cut_short: bool = Field(description="True if the client left or the answer failed half-way.")
    finish_reason: FinishReason | None = None
    created_at: float


ResponseStatus = Literal["completed", "incomplete", "failed", "cancelled"]


class ResponseRecord(WireModel):
    """What a response is kept as. On `after.response.RID`, from the edge; no other reads its JSON."""

    kind: ClassVar[str] = "response"

    request_id: RequestId
    run_id: str = Field(pattern=r"^[0-9a-f]{8}$")
    response_id: str = Field(max_length=64)
    previous_response_id: str | None = Field(default=None, max_length=64)
    tenant: Tenant
    model: str
    status: ResponseStatus
    input: str = Field(description="JSON text: the items that were new in its request, each with an id.")
    output: str = Field(description="JSON text: the items of the answer.")
    body: str = Field(description="JSON text: the Response object but for its output.")
    created_at: float


AfterRecord = ConversationRecord | ResponseRecord
"""What the edge keeps of an answer; `kind` is a token of the subject."""
