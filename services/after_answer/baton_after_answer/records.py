"""From a message of AFTER to the row it becomes. No I/O.

A NUL character is legal in JSON and in SQLite, not in PostgreSQL: it is replaced, so that no answer is lost
to it on one of the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from baton_contracts.base import MalformedMessage
from baton_contracts.prompt import ToolCall
from baton_contracts.records import ConversationRecord, ResponseRecord, StoredMessage, UsageRecord
from baton_contracts.subjects import request_id_of

Record = UsageRecord | ConversationRecord | ResponseRecord
Row = dict[str, Any]

_KINDS: dict[str, type[Record]] = {
    "usage": UsageRecord,
    ConversationRecord.kind: ConversationRecord,
    ResponseRecord.kind: ResponseRecord,
}


def parse_record(subject: str, payload: bytes) -> Record:
    """`subject` is `baton.v1.after.KIND.RID`. Raises MalformedMessage."""
    kind = subject.split(".")[-2]
    model = _KINDS.get(kind)
    if model is None:
        raise MalformedMessage("after-answer record", f"kind {kind!r} is unknown")
    record = model.decode(payload)
    if record.request_id != request_id_of(subject):
        raise MalformedMessage(model.__name__, "request_id is not the one of the subject")
    return record


def ledger_row(record: UsageRecord, written_at: float) -> Row:
    return {
        "tenant_id": record.tenant.tenant_id,
        "request_id": record.request_id,
        "run_id": record.run_id,
        "attempt": record.attempt,
        "team": record.tenant.team,
        "key_id": record.tenant.key_id,
        "model": record.model,
        "replica": record.replica,
        "prompt_tokens": record.usage.prompt_tokens,
        "cached_tokens": record.usage.cached_tokens,
        "completion_tokens": record.usage.completion_tokens,
        "outcome": record.outcome,
        "finish_reason": record.finish_reason,
        "error_code": record.error_code,
        "stand_in": record.stand_in,
        "cost_picos": record.cost_picos,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "written_at": written_at,
    }


def turn_row(record: ConversationRecord, written_at: float) -> Row:
    return {
        "tenant_id": record.tenant.tenant_id,
        "conversation_id": record.conversation_id,
        "request_id": record.request_id,
        "run_id": record.run_id,
        "team": record.tenant.team,
        "key_id": record.tenant.key_id,
        "model": record.model,
        "asked": [_stored(said) for said in record.asked],
        "answer": _storable(record.answer),
        "tool_calls": _stored_calls(record.tool_calls) or None,
        "cut_short": record.cut_short,
        "finish_reason": record.finish_reason,
        "created_at": record.created_at,
        "written_at": written_at,
    }


def response_row(record: ResponseRecord, written_at: float) -> Row:
    """Its JSON needs no `_storable`: there a NUL is written as an escape."""
    return {
        "tenant_id": record.tenant.tenant_id,
        "response_id": record.response_id,
        "previous_response_id": record.previous_response_id,
        "request_id": record.request_id,
        "run_id": record.run_id,
        "team": record.tenant.team,
        "key_id": record.tenant.key_id,
        "model": record.model,
        "status": record.status,
        "input": record.input,
        "output": record.output,
        "body": record.body,
        "created_at": record.created_at,
        "written_at": written_at,
    }


def rejected_row(subject: str, payload: bytes, reason: str, written_at: float) -> Row:
    return {
        "digest": hashlib.sha256(subject.encode() + b"\0" + payload).hexdigest(),
        "subject": subject,
        "payload": payload,
        "reason": reason,
        "written_at": written_at,
    }


def _stored(said: StoredMessage) -> dict[str, Any]:
    """Without what it lacks, so that old rows and new ones look alike."""
    stored: dict[str, Any] = {"role": said.role, "content": _storable(said.content)}
    if said.name:
        stored["name"] = said.name
    if said.tool_calls:
        stored["tool_calls"] = _stored_calls(said.tool_calls)
    if said.tool_call_id:
        stored["tool_call_id"] = _storable(said.tool_call_id)
    return stored


def _stored_calls(calls: Iterable[ToolCall]) -> list[dict[str, str]]:
    return [
        {"call_id": _storable(call.call_id), "name": call.name, "arguments": _storable(call.arguments)}
        for call in calls
    ]


def _storable(text: str) -> str:
    return text.replace("\0", "�")
