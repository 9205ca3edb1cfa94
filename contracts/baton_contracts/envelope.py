"""The envelope: what every handoff of a request carries beside its own body."""

from __future__ import annotations

from pydantic import Field

from baton_contracts import CONTRACT_VERSION
from baton_contracts.base import WireModel
from baton_contracts.identifiers import RequestId, SubjectToken


class Tenant(WireModel):
    """Who asks, as the edge found out from the API key."""

    tenant_id: str = Field(max_length=128)
    team: str = Field(default="default", max_length=128)
    key_id: str = Field(max_length=128, description="Public name of the key, never the key itself.")


class Envelope(WireModel):
    """Travels with the baton, unchanged but for `attempt`, `sent_at` and `parent_span_id`."""

    request_id: RequestId
    run_id: str = Field(
        pattern=r"^[0-9a-f]{8}$",
        description="Random, chosen by the edge: a client that reuses a request id still gets its own "
        "ledger row. (request_id, run_id, attempt) is the key of every after-answer record.",
    )
    tenant: Tenant
    edge: SubjectToken = Field(description="Instance of the edge that holds the client's connection.")
    conversation_id: str = Field(max_length=64)
    deadline: float = Field(description="Unix time in seconds; nothing is handed on after it.")
    sent_at: float = Field(description="Unix time in seconds at which the sender handed this on.")
    attempt: int = Field(default=1, ge=1, description="Engine attempt; the gateway counts it up.")
    parent_span_id: str | None = Field(default=None, pattern=r"^[0-9a-f]{16}$")
    contract: str = Field(default=CONTRACT_VERSION, pattern=r"^\d+\.\d+$")

    @property
    def traceparent(self) -> str:
        """W3C Trace Context, version 00, sampled."""
        return f"00-{self.request_id}-{self.parent_span_id or '0' * 15 + '1'}-01"
