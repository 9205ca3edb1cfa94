"""After-answer records for tests, with values that tests can rely on."""

from __future__ import annotations

from baton_contracts import subjects
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.identifiers import new_request_id
from baton_contracts.records import ConversationRecord, StoredMessage, UsageRecord

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


def subject_of(record: UsageRecord | ConversationRecord) -> str:
    kind = "usage" if isinstance(record, UsageRecord) else "conversation"
    return subjects.after(kind, record.request_id)


def message_id_of(record: UsageRecord | ConversationRecord) -> str:
    last = record.attempt if isinstance(record, UsageRecord) else "conversation"
    return f"{record.request_id}-{record.run_id}-{last}"
