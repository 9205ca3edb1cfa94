"""What requests came to, as the ledger says: asked of the books, in any number.

Owns the way from runs to rows. Knows nothing of limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from baton_common.bus import Bus
from baton_contracts import subjects
from baton_contracts.identifiers import new_request_id
from baton_contracts.limits import Run
from baton_contracts.queries import MAX_REQUEST_IDS, BooksQuery, BooksReply
from baton_contracts.records import UsageRecord
from baton_edge_api.request_ids import request_ids_of
from baton_edge_api.side_questions import ask


class Ledger:
    def __init__(self, bus: Bus, seconds: float) -> None:
        self._bus = bus
        self._seconds = seconds

    async def rows(self, runs: Collection[Run]) -> Mapping[Run, list[UsageRecord]]:
        """Those of each run that has some; with every record stored before. Raises RequestFailed while the
        books can't say."""
        found: dict[Run, list[UsageRecord]] = {}
        for tenant_id, wanted in _by_tenant(runs).items():
            ids = list(wanted)
            for start in range(0, len(ids), MAX_REQUEST_IDS):
                for row in await self._ask(tenant_id, ids[start : start + MAX_REQUEST_IDS]):
                    if run := wanted[row.request_id].get(row.run_id):
                        found.setdefault(run, []).append(row)
        return found

    async def _ask(self, tenant_id: str, request_ids: Sequence[str]) -> tuple[UsageRecord, ...]:
        first, *more = request_ids
        query = BooksQuery(kind="usage", tenant_id=tenant_id, request_id=first, more_request_ids=tuple(more))
        subject = subjects.books(new_request_id())
        reply = await ask(self._bus, subject, query, BooksReply, to="after_answer", seconds=self._seconds)
        return reply.usage


def _by_tenant(runs: Collection[Run]) -> dict[str, dict[str, dict[str, Run]]]:
    """Runs by tenant, request id and run id: a client may use a request id again."""
    found: dict[str, dict[str, dict[str, Run]]] = {}
    for run in runs:
        for request_id in request_ids_of(run.request_id, run.num_requests):
            found.setdefault(run.tenant_id, {}).setdefault(request_id, {})[run.run_id] = run
    return found
