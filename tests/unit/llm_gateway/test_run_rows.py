"""When an attempt is booked, and as what."""

from __future__ import annotations

from baton_common.context import RequestContext
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_common.tracing import SpanRecorder
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.frames import Data, End, Usage
from baton_contracts.records import UsageRecord
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.books import Books
from baton_llm_gateway.run_rows import RunRows

RID = "0123456789abcdef0123456789abcdef"


class Run:
    def __init__(self) -> None:
        self.bus = MemoryBus()
        node = Node(self.bus, "llm_gateway")
        tenant = Tenant(tenant_id="acme", key_id="dev")
        envelope = Envelope(
            request_id=RID,
            run_id="deadbeef",
            tenant=tenant,
            edge="edge_api-1",
            conversation_id="c",
            deadline=1e12,
            sent_at=1.0,
        )
        self.spans = SpanRecorder("llm_gateway", node.instance, 5, node.clock)
        self.rows = RunRows(RequestContext(node, envelope, self.spans), Books(self.bus))

    def stored(self) -> list[tuple[int, str, int, int]]:
        rows = map(UsageRecord.decode, self.bus.stored.get(subjects.after("usage", RID), {}).values())
        return [(r.attempt, r.outcome, r.usage.prompt_tokens, r.usage.completion_tokens) for r in rows]


def begun() -> Attempt:
    attempt = Attempt(1, "m", 0.0, replica="r1", prompt_tokens=7)
    attempt.add(Data(request_id=RID, sender="r1", seq=1, text="a", token_ids=(4, 5)))
    return attempt


async def test_one_that_another_goes_on_behind_is_booked_as_migrated_and_the_prompt_once() -> None:
    run, first = Run(), begun()
    run.rows.note_accepted(first)
    assert run.rows.unbooked is first
    second = first.next("m", 1.0)
    second.replica = "r2"
    run.rows.note_accepted(second)
    usage = Usage(prompt_tokens=7, completion_tokens=5)
    second.end(End(request_id=RID, sender="r2", seq=2, finish_reason="stop", usage=usage))
    run.rows.book_last()
    await run.rows.see_stored()
    assert run.stored() == [(1, "migrated", 0, 2), (2, "finished", 7, 3)]
    (span,) = run.spans.spans
    assert (span.name, span.attributes["rows"], span.attributes["stored"]) == ("ledger", 2, 2)


async def test_one_that_was_torn_off_is_booked_once_as_cancelled() -> None:
    run = Run()
    run.rows.note_accepted(begun())
    run.rows.book_last()
    run.rows.book_last()
    await run.rows.see_stored()
    assert run.stored() == [(1, "cancelled", 7, 2)]


async def test_where_nothing_was_accepted_there_is_no_row() -> None:
    run = Run()
    run.rows.book_last()
    await run.rows.see_stored()
    assert run.stored() == []
    assert run.spans.spans == []
