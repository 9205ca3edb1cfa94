"""From message to row, and the spans that tell of it."""

from __future__ import annotations

import pytest

from baton_after_answer.receipts import span_batches
from baton_after_answer.records import parse_record, rejected_row
from baton_after_answer.settings import Settings
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from tests.support.after_records import RIVAL, conversation_record, subject_of, usage_record

RID = "cd" * 16


def test_a_record_comes_back_as_it_was_sent() -> None:
    for record in (usage_record(), conversation_record()):
        assert parse_record(subject_of(record), record.encode()) == record


@pytest.mark.parametrize(
    ("subject", "payload", "reason"),
    [
        (subjects.after("usage", RID), b"{", "not a valid UsageRecord"),
        (subjects.after("usage", RID), b"{}", "request_id: Field required"),
        (subjects.after("refund", RID), b"{}", "kind 'refund' is unknown"),
        (
            subjects.after("usage", "ef" * 16),
            usage_record(request_id=RID).encode(),
            "not the one of the subject",
        ),
    ],
)
def test_what_is_no_record_is_told_apart_with_a_reason(subject: str, payload: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        parse_record(subject, payload)


def test_a_rejected_message_has_one_key_however_often_it_comes() -> None:
    first, again = (rejected_row("s", b"x", "why", when) for when in (1.0, 2.0))
    assert first["digest"] == again["digest"]
    assert first["digest"] != rejected_row("s", b"y", "why", 1.0)["digest"]


def test_spans_tell_how_long_a_record_waited_and_was_written() -> None:
    usage = usage_record(request_id=RID)
    (batch,) = span_batches([(usage, 100.0)], instance="after_answer-1", taken_at=100.25, committed_at=100.75)
    assert (batch.request_id, batch.tenant_id) == (RID, "acme")
    assert [(span.stop, span.name, span.start, span.duration) for span in batch.spans] == [
        (10, "queue", 100.0, 0.25),
        (10, "ledger", 100.25, 0.5),
    ]
    queue, written = batch.spans
    assert queue.parent_span_id == written.span_id
    assert written.attributes["completion_tokens"] == 7
    assert written.attributes["outcome"] == "finished"


def test_both_records_of_a_request_share_a_batch_and_tenants_do_not() -> None:
    records = [
        usage_record(request_id=RID),
        conversation_record(request_id=RID),
        usage_record(request_id=RID, tenant=RIVAL),
    ]
    stored = [(record, 2000.0) for record in records]
    batches = span_batches(stored, instance="i", taken_at=2000.0, committed_at=2000.0)
    assert [(batch.tenant_id, [span.name for span in batch.spans]) for batch in batches] == [
        ("acme", ["queue", "ledger", "queue", "conversation"]),
        ("rival", ["queue", "ledger"]),
    ]


def test_a_record_delivered_again_makes_the_same_spans() -> None:
    record = usage_record(request_id=RID)
    first, again = (
        span_batches([(record, 1.0)], instance="i", taken_at=2000.0 + n, committed_at=2001.0 + n)[0]
        for n in (0, 5)
    )
    assert [span.span_id for span in first.spans] == [span.span_id for span in again.spans]
    other = span_batches(
        [(usage_record(request_id=RID, attempt=2), 1.0)], instance="i", taken_at=1.0, committed_at=1.0
    )
    assert {span.span_id for span in first.spans}.isdisjoint(span.span_id for span in other[0].spans)


def test_a_clock_that_is_behind_makes_no_negative_wait() -> None:
    (batch,) = span_batches([(usage_record(), 100.0)], instance="i", taken_at=99.0, committed_at=98.0)
    assert [(span.start, span.duration) for span in batch.spans] == [(99.0, 0.0), (99.0, 0.0)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("postgresql://u:p@db/books", "postgresql+psycopg://u:p@db/books"),
        ("postgres://u:p@db/books", "postgresql+psycopg://u:p@db/books"),
        ("sqlite:////tmp/x.sqlite", "sqlite:////tmp/x.sqlite"),
        ("", "sqlite:////state/books.sqlite"),
    ],
)
def test_the_database_is_found(given: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_DATABASE_URL", given)
    monkeypatch.setenv("BATON_HOME", "/state")
    settings = Settings()
    assert settings.resolved_database_url().render_as_string(hide_password=False) == expected
    assert "p@" not in repr(settings)
