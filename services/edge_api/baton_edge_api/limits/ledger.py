"""What requests came to, as the books say. Owns the question on the bus; knows nothing of limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from baton_common.bus import Bus
from baton_common.run_rows import rows_of_runs
from baton_common.spending import Payer, spent_in_ledger
from baton_contracts import subjects
from baton_contracts.identifiers import new_request_id
from baton_contracts.limits import AccountState, BudgetPeriod, Run
from baton_contracts.queries import BooksQuery, BooksReply
from baton_contracts.records import UsageRecord
from baton_edge_api.side_questions import ask


class Ledger:
    def __init__(self, bus: Bus, seconds: float) -> None:
        self._bus = bus
        self._seconds = seconds

    async def rows(self, runs: Collection[Run]) -> Mapping[Run, list[UsageRecord]]:
        """Those of each run that has some, with every record stored before. Raises RequestFailed while the
        books can't say."""
        return await rows_of_runs(self._ask, runs)

    async def spent(self, payer: Payer, state: AccountState, period: BudgetPeriod, now: float) -> int:
        """Pico-dollars that `state` should say it has spent. Raises likewise."""
        return await spent_in_ledger(self._ask, payer, state, period, now)

    async def _ask(self, query: BooksQuery) -> BooksReply:
        subject = subjects.books(new_request_id())
        return await ask(self._bus, subject, query, BooksReply, to="after_answer", seconds=self._seconds)
