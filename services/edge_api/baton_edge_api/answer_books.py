"""What one answer leaves behind: its limits settled, its records kept, each once and before its last byte.

Knows nothing of the client, or of how the answer is told.
"""

from __future__ import annotations

import asyncio

from baton_contracts.envelope import Envelope
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.limits.admission import Grant
from baton_edge_api.question import Ending, Question
from baton_edge_api.record_log import RecordLog
from baton_edge_api.relay_call import Call
from baton_edge_api.request_trace import RequestTrace
from baton_edge_api.settings import EdgeSettings


class AnswerBooks:
    def __init__(
        self,
        record_log: RecordLog,
        settings: EdgeSettings,
        envelope: Envelope,
        question: Question,
        call: Call,
        so_far: AnswerSoFar,
        trace: RequestTrace,
        grant: Grant,
        *,
        asked_at: float,
    ) -> None:
        self._record_log = record_log
        self._settings = settings
        self._envelope = envelope
        self._question = question
        self._call = call
        self._so_far = so_far
        self._trace = trace
        self._grant = grant
        self._asked_at = asked_at
        self._is_kept = False

    async def close(self) -> None:
        """Of a good end, before its last byte; both are writes to the bus, made at the same time."""
        if self._grant.is_limited:
            await asyncio.gather(self.charge(), self.keep(Ending()))
        else:
            await self.keep(Ending())

    async def charge(self) -> None:
        """Once: the first call counts. Before the last byte, so that a client which asks again at once finds
        its seat free and its limits settled; far from its limits, they are with its next request."""
        if not self._grant.is_limited:
            return
        so_far = self._so_far
        beginning = self._call.beginning
        model = beginning.model if beginning else self._question.chat.model
        charged = self._call.charged(so_far.used)
        await self._grant.settle(
            so_far.used, model, charged, uncounted=self._call.uncounted, is_all=self._call.has_ended
        )
        if self._grant.alerts:
            self._trace.attributes["budget_alerts"] = tuple(self._grant.alerts)

    async def keep(self, ending: Ending) -> None:
        """Once: the first call counts. An answer that never began is not kept."""
        if self._so_far.prologue is None or self._is_kept:
            return
        self._is_kept = True
        began = self._trace.wall()
        records = self._question.records(self._envelope, self._so_far, ending, self._asked_at)
        if self._settings.plain_gateway:  # a gateway keeps no conversations, but what it was told to store
            records = [record for record in records if record.kind != "conversation"]
        if records:
            stored = await self._record_log.keep(records, self._settings.record_seconds)
            self._trace.span("record", began, stored=stored)
