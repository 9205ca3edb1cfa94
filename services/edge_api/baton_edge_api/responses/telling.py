"""What there is to tell of one answer: its output so far and the Response that goes with it.

Shared by the two writers and by what is kept, so that all three say the same. Knows nothing of events.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from baton_contracts.errors import ErrorBody
from baton_contracts.openai_responses import ResponseRequest
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.responses.ids import item_id, response_id
from baton_edge_api.responses.output import Change, Output, OutputItem
from baton_edge_api.responses.response_object import ResponseForm, error_object, output_items, status_of


class Telling:
    def __init__(self, key: str, wire: ResponseRequest, created: int) -> None:
        self.key = key
        self.output = Output()
        self._form = ResponseForm(response_id(key), wire, created)
        self._completed_at: int | None = None
        self._failed = False

    @property
    def response_id(self) -> str:
        return self._form.response_id

    def item_id(self, item: OutputItem) -> str:
        return item_id(item.kind, self.key, item.number, is_input=False)

    def in_progress(self, model: str) -> dict[str, Any]:
        return self._form.response("in_progress", model)

    def finish(self, so_far: AnswerSoFar) -> Sequence[Change]:
        """The answer has come to its end: what was under way is closed, and an answer without any item gets
        one."""
        status, _ = status_of(so_far.reasons[0])
        self._completed_at = int(time.time())
        changes = self.output.close(is_cut=status == "incomplete")
        return changes or (self.output.add_empty_message() if not self.output.items else ())

    def finished(self, so_far: AnswerSoFar) -> dict[str, Any]:
        status, incomplete = status_of(so_far.reasons[0])
        return self._form.response(
            status,
            so_far.model,
            output=output_items(self.output, self.key),
            usage=so_far.usage,
            completed_at=self._completed_at if status == "completed" else None,
            incomplete=incomplete,
            citations=so_far.citations,
        )

    def broken(self, so_far: AnswerSoFar, error: ErrorBody) -> dict[str, Any]:
        """Its client is there and is told that it failed."""
        self._failed = True
        return self.cut_short(so_far, error)

    def cut_short(self, so_far: AnswerSoFar, error: ErrorBody | None) -> dict[str, Any]:
        """With what had come until then. An answer whose client left did not fail: it was cancelled."""
        self.output.close(is_cut=True)
        failed = self._failed or error is None or error.code != "client_closed_request"
        return self._form.response(
            "failed" if failed else "cancelled",
            so_far.model,
            output=output_items(self.output, self.key),
            usage=so_far.usage if so_far.end else None,
            error=error_object(error.status, error.message) if error and failed else None,
            citations=so_far.citations,
        )
