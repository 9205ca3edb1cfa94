"""A response as the way of an answer needs it: the question, its two forms of answer, what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson

from baton_contracts.envelope import Envelope
from baton_contracts.frames import Data
from baton_contracts.openai_responses import ResponseRequest
from baton_contracts.prompt import ChatRequest
from baton_contracts.records import AfterRecord, ResponseRecord
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.exchange import Inside, Promise
from baton_edge_api.question import AnswerWriter, Ending, Question, WholeAnswer, conversation_record
from baton_edge_api.responses.events import EventWriter
from baton_edge_api.responses.ids import item_id, response_id, response_key
from baton_edge_api.responses.items import Item, Placed
from baton_edge_api.responses.request_mapping import chat_request
from baton_edge_api.responses.response_object import ResponseForm
from baton_edge_api.responses.telling import Telling


@dataclass(frozen=True)
class ResponseQuestion(Question):
    wire: ResponseRequest
    items: tuple[Item, ...]
    """What is new in this request; references stand in it until they are resolved."""
    told: dict[str, Telling] = field(default_factory=dict[str, Telling])
    """By run: what its writer tells is what is kept."""
    promise: Promise | None = None
    """Its id was given out before."""

    @property
    def refers_to_stored(self) -> bool:
        if self.wire.previous_response_id is not None:
            return True
        return any(item["type"] == "item_reference" for item in self.items)

    def with_stored(self, placed: Sequence[Placed], items: tuple[Item, ...]) -> ResponseQuestion:
        """`placed`: all that the model is shown; `items`: what is new, with references resolved."""
        messages = chat_request(self.wire, placed).messages
        return replace(self, chat=self.chat.model_copy(update={"messages": messages}), items=items)

    def made_inside(self, inside: Inside) -> Self:
        return replace(super().made_inside(inside), promise=inside.promise)

    def writer(self, envelope: Envelope, created: int) -> AnswerWriter:
        key = response_key(envelope)
        if self.promise:
            key, created = self.promise.key, int(self.promise.created_at)
        telling = self.told[envelope.run_id] = Telling(key, self.wire, created)
        if not self.chat.stream:
            return WholeResponse(telling)
        return EventWriter(telling, self.promise.num_events if self.promise else 0)

    # Made later

    def queued(self, key: str, created: int) -> dict[str, Any]:
        """What its client gets at once."""
        return ResponseForm(response_id(key), self.wire, created).response("queued", self.wire.model)

    def input_with_ids(self, key: str) -> str:
        """JSON text."""
        return orjson.dumps(with_ids(self.items, key)).decode()

    def as_stream(self) -> str:
        """The same request, to be answered as a stream; JSON text."""
        asked = self.wire.model_copy(update={"stream": True})
        return asked.model_dump_json(by_alias=True, exclude_unset=True)

    def records(
        self, envelope: Envelope, so_far: AnswerSoFar, ending: Ending, asked_at: float
    ) -> Sequence[AfterRecord]:
        records: list[AfterRecord] = []
        if self.promise and self.promise.abandoned:
            return records
        if self.conversation_id is not None:
            records.append(
                conversation_record(self._without_instructions(), envelope, so_far, ending, asked_at)
            )
        if self.wire.store is not False:
            records.append(self._response_record(envelope, so_far, ending, asked_at))
        return records

    def _without_instructions(self) -> ChatRequest:
        """They are of this response only."""
        messages = self.chat.messages[1 if self.wire.instructions else 0 :]
        return self.chat.model_copy(update={"messages": messages})

    def _response_record(
        self, envelope: Envelope, so_far: AnswerSoFar, ending: Ending, asked_at: float
    ) -> ResponseRecord:
        telling = self.told[envelope.run_id]
        cut_short, error = ending.cut_short, ending.error
        response = telling.cut_short(so_far, error) if cut_short else telling.finished(so_far)
        output = response.pop("output")
        return ResponseRecord(
            request_id=envelope.request_id,
            run_id=envelope.run_id,
            response_id=telling.response_id,
            previous_response_id=self.wire.previous_response_id,
            tenant=envelope.tenant,
            model=so_far.model,
            status=response["status"],
            input=self.input_with_ids(telling.key),
            output=orjson.dumps(output).decode(),
            body=orjson.dumps(response).decode(),
            created_at=self.promise.created_at if self.promise else asked_at,
        )


def with_ids(items: Sequence[Item], key: str) -> list[dict[str, Any]]:
    """An item keeps the id that its client gave, unless another has it already."""
    seen: set[str] = set()
    named: list[Item] = []
    for number, item in enumerate(items):
        own = item.get("id")
        chosen = own if own and own not in seen else item_id(item["type"], key, number, is_input=True)
        seen.add(chosen)
        named.append(item | {"id": chosen})
    return named


class WholeResponse(WholeAnswer):
    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    def data(self, frame: Data) -> bytes:
        self._telling.output.take(frame)
        return b""

    def finish(self, so_far: AnswerSoFar) -> bytes:
        self._telling.finish(so_far)
        return b""

    def last(self, so_far: AnswerSoFar) -> bytes:
        return orjson.dumps(self._telling.finished(so_far))
