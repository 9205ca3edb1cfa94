"""After-answer records for tests, with values that tests can rely on."""

from __future__ import annotations

from baton_contracts import subjects
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.identifiers import new_request_id
from baton_contracts.records import ConversationRecord, ResponseRecord, StoredMessage, UsageRecord

ACME = Tenant(tenant_id="acme", team="research", key_id="key_acme")
RIVAL = Tenant(tenant_id="rival", team="default", key_id="key_rival")


def usage_record(**changes: object) -> UsageRecord:
    record = UsageRecord(
        request_id=new_request_id(),
        run_id="0a1b2c3d",
        attempt=1,
        tenant=ACME,
        model="smollm2-135m",
        replica="engine_worker-00000001",
        usage=Usage(prompt_tokens=42, cached_tokens=16, completion_tokens=7),
        outcome="finished",
        finish_reason="stop",
        cost_picos=960_000,
        started_at=1000.0,
        ended_at=1000.5,
    )
    return record.model_copy(update=changes)


def conversation_record(**changes: object) -> ConversationRecord:
    record = ConversationRecord(
        request_id=new_request_id(),
        run_id="0a1b2c3d",
        conversation_id="conv_1",
        tenant=ACME,
        model="smollm2-135m",
        asked=(StoredMessage(role="user", content="What is a KV cache?"),),
        answer="Keys and values, kept.",
        cut_short=False,
        finish_reason="stop",
        created_at=1000.5,
    )
    return record.model_copy(update=changes)


def response_record(number: int = 0, previous: int | None = None, **changes: object) -> ResponseRecord:
    """The `number`-th of a chain."""
    request_id = f"{number + 1:032x}"
    record = ResponseRecord(
        request_id=request_id,
        run_id="0a1b2c3d",
        response_id=response_id(number),
        previous_response_id=None if previous is None else response_id(previous),
        tenant=ACME,
        model="smollm2-135m",
        status="completed",
        input=f'[{{"id":"msg_i{number}"}}]',
        output=f'[{{"id":"msg_o{number}"}}]',
        body='{"object":"response"}',
        created_at=1000.0 + number,
    )
    return record.model_copy(update=changes)


def response_id(number: int) -> str:
    return f"resp_{number + 1:032x}0a1b2c3d"


AnyRecord = UsageRecord | ConversationRecord | ResponseRecord


def subject_of(record: AnyRecord) -> str:
    kind = "usage" if isinstance(record, UsageRecord) else record.kind
    return subjects.after(kind, record.request_id)


def message_id_of(record: AnyRecord) -> str:
    last = record.attempt if isinstance(record, UsageRecord) else record.kind
    return f"{record.request_id}-{record.run_id}-{last}"
