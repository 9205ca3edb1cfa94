"""What is stored of a response until its answer is kept, and how a client sees it meanwhile.

Knows nothing of where it is stored or of who makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import orjson
from pydantic import Field

from baton_contracts.base import MalformedMessage, WireModel
from baton_contracts.envelope import Tenant
from baton_contracts.identifiers import name_of_token, subject_token
from baton_contracts.openai_responses import ResponseRequest
from baton_contracts.records import ResponseRecord, ResponseStatus
from baton_edge_api.responses.events import event
from baton_edge_api.responses.ids import response_id
from baton_edge_api.responses.response_object import ResponseForm

_UNKNOWN = "unknown"


class BackgroundRecord(WireModel):
    key: str = Field(pattern=r"^[0-9a-f]{40}$", description="Of the response: request id and run id.")
    tenant: Tenant
    model: str
    previous_response_id: str | None = None
    ask: str = Field(description="JSON text: the request, as it is asked of ourselves.")
    input: str = Field(description="JSON text: its new items, each with an id.")
    body: str = Field(description="JSON text: the Response but for its output and its status.")
    created_at: float
    state: Literal["queued", "in_progress"] = "queued"
    is_cancelled: bool = False
    owner: str = Field(description="The edge that makes it; empty: whoever takes it.")
    starts: int = Field(default=1, ge=1, description="How many edges have taken it, this one included.")
    streams: bool = Field(default=False, description="Its events are kept, for who follows them.")
    is_unreadable: bool = Field(default=False, description="What stood there before could not be read.")

    @classmethod
    def read(cls, entry: str, value: bytes) -> BackgroundRecord:
        """What an entry says. Of one that can't be read, what its name says: whoever takes that ends it."""
        try:
            record = cls.decode(value)
        except MalformedMessage:
            return cls._unreadable(entry)
        return record if record.entry == entry else cls._unreadable(entry)

    @classmethod
    def _unreadable(cls, entry: str) -> BackgroundRecord:
        """Raises MalformedMessage: this is no response's name."""
        token, _, key = entry.partition(".")
        wire = ResponseRequest(model=_UNKNOWN, input="", background=True)
        try:
            return cls(
                key=key,
                tenant=Tenant(tenant_id=name_of_token(token), key_id=_UNKNOWN),
                model=_UNKNOWN,
                ask="",
                input="[]",
                body=orjson.dumps(
                    ResponseForm(response_id(key), wire, 0).response("queued", _UNKNOWN)
                ).decode(),
                created_at=0.0,
                owner="",
                is_unreadable=True,
            )
        except ValueError as error:
            raise MalformedMessage(cls.__name__, f"{entry} names no response ({error})") from None

    @property
    def entry(self) -> str:
        return entry_of(self.tenant.tenant_id, self.key)

    @property
    def request_id(self) -> str:
        return self.key[:32]

    @property
    def response_id(self) -> str:
        return response_id(self.key)

    def taken_by(self, edge: str) -> BackgroundRecord:
        changes = {"owner": edge, "starts": self.starts + 1, "state": "queued"}
        return self.model_copy(update=changes)

    def begun(self) -> bytes:
        """What a stream of it begins with: as many events as a Promise says."""
        told = {"response": self.model_copy(update={"state": "queued"}).object()}
        return event("response.created", told, 0) + event("response.queued", told, 1)

    def object(self) -> dict[str, Any]:
        return orjson.loads(self.body) | {"status": self.state, "output": []}

    def ended(
        self, status: ResponseStatus, error: dict[str, Any] | None, output: Sequence[dict[str, Any]] = ()
    ) -> ResponseRecord:
        """What is kept of one whose answer never began, or whose edge is gone, with what that told."""
        body = orjson.loads(self.body) | {"status": status, "error": error}
        return ResponseRecord(
            request_id=self.request_id,
            run_id=self.key[32:],
            response_id=self.response_id,
            previous_response_id=self.previous_response_id,
            tenant=self.tenant,
            model=self.model,
            status=status,
            input=self.input,
            output=orjson.dumps(output).decode(),
            body=orjson.dumps(body).decode(),
            created_at=self.created_at,
        )


def entry_of(tenant_id: str, key: str) -> str:
    return f"{subject_token(tenant_id)}.{key}"


def tenant_token(entry: str) -> str:
    return entry.split(".", maxsplit=1)[0]
