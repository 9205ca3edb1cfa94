"""The ledger's rows of many runs, in questions that the books can answer.

Owns how runs become questions, and rows find their run again. How the books are asked is the caller's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from baton_contracts.limits import Run
from baton_contracts.queries import MAX_REQUEST_IDS, BooksQuery, BooksReply
from baton_contracts.records import UsageRecord

AskBooks = Callable[[BooksQuery], Awaitable[BooksReply]]


async def rows_of_runs(ask: AskBooks, runs: Collection[Run]) -> dict[Run, list[UsageRecord]]:
    """Those of each run that has some. Raises what `ask` raises."""
    found: dict[Run, list[UsageRecord]] = {}
    for tenant_id, wanted in _by_tenant(runs).items():
        ids = list(wanted)
        for start in range(0, len(ids), MAX_REQUEST_IDS):
            reply = await ask(_query(tenant_id, ids[start : start + MAX_REQUEST_IDS]))
            for row in reply.usage:
                if run := wanted[row.request_id].get(row.run_id):
                    found.setdefault(run, []).append(row)
    return found


def _by_tenant(runs: Collection[Run]) -> Mapping[str, Mapping[str, Mapping[str, Run]]]:
    """Runs by tenant, request id and run id: a client may use a request id again."""
    found: dict[str, dict[str, dict[str, Run]]] = {}
    for run in runs:
        for request_id in run.request_ids:
            found.setdefault(run.tenant_id, {}).setdefault(request_id, {})[run.run_id] = run
    return found


def _query(tenant_id: str, request_ids: Sequence[str]) -> BooksQuery:
    first, *more = request_ids
    return BooksQuery(kind="usage", tenant_id=tenant_id, request_id=first, more_request_ids=tuple(more))
