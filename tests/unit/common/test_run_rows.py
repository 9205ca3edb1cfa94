"""Rows of many runs: asked of each tenant's books in questions of the size they take, told apart by run."""

from __future__ import annotations

from baton_common.run_rows import rows_of_runs
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.limits import Run
from baton_contracts.queries import BooksQuery, BooksReply
from baton_contracts.records import UsageRecord


def row(tenant_id: str, request_id: str, run_id: str) -> UsageRecord:
    return UsageRecord(
        request_id=request_id,
        run_id=run_id,
        attempt=1,
        tenant=Tenant(tenant_id=tenant_id, key_id="k"),
        model="small",
        replica="engine-1",
        usage=Usage(),
        outcome="finished",
        started_at=1.0,
        ended_at=2.0,
    )


async def test_questions_are_of_one_tenant_and_of_a_size_and_rows_find_their_run() -> None:
    many = [Run("acme", f"{number:032x}", "0" * 8) for number in range(1, 131)]
    other = Run("other", "f" * 32, "1" * 8)
    again = Run("acme", many[0].request_id, "2" * 8)
    three_prompts = Run("other", "e" * 32, "3" * 8, num_requests=3)
    asked: list[tuple[str, int]] = []

    async def ask(query: BooksQuery) -> BooksReply:
        assert query.request_id
        ids = (query.request_id, *query.more_request_ids)
        asked.append((query.tenant_id, len(ids)))
        rows = [row(query.tenant_id, each, run) for each in ids for run in ("1" * 8, "2" * 8, "3" * 8)]
        return BooksReply(usage=tuple(rows))

    found = await rows_of_runs(ask, [*many, other, again, three_prompts])
    assert asked == [("acme", 128), ("acme", 2), ("other", 4)]
    assert {run: len(rows) for run, rows in found.items()} == {other: 1, again: 1, three_prompts: 3}
    assert not await rows_of_runs(ask, [])
