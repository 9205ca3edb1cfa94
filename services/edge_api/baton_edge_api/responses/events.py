"""The stream of a Response: typed, numbered events in the order that OpenAI's clients build upon.

Owns the form and the order of events. A token costs one JSON string: what surrounds it is put together once
an item. Knows nothing of when events are sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, Prologue
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.responses.output import Change, OutputItem
from baton_edge_api.responses.response_object import item_object, part_object
from baton_edge_api.responses.telling import Telling
from baton_edge_api.token_objects import rated_tokens

_PART_EVENTS = {"message": "output_text", "reasoning": "reasoning_text"}


def event(kind: str, members: dict[str, Any], number: int) -> bytes:
    body = orjson.dumps({"type": kind} | members | {"sequence_number": number})
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)


def error_event(error: ErrorBody, number: int) -> bytes:
    """In our own words."""
    return event("error", {"code": error.code, "message": error.message, "param": error.param}, number)


def numbered(piece: bytes) -> Iterable[tuple[int, bytes]]:
    """The events in a piece of a stream, each with its number, its last member. Comments are none."""
    for block in piece.split(b"\n\n"):
        if block.startswith(b"event: "):
            yield int(block[block.rindex(b":") + 1 : -1]), block + b"\n\n"


class EventWriter:
    """Implements AnswerWriter."""

    def __init__(self, telling: Telling, num_before: int = 0) -> None:
        """`num_before`: events that its client has had, the first of which says that it was created."""
        self._telling = telling
        self._output = telling.output
        self._sequence = num_before
        self._deltas: dict[int, bytes] = {}
        """Item → its delta event up to the delta."""

    def begin(self, prologue: Prologue) -> bytes:
        response = self._telling.in_progress(prologue.model)
        created = b"" if self._sequence else self._state("response.created", response)
        return created + self._state("response.in_progress", response)

    def data(self, frame: Data) -> bytes:
        return self._tell(self._output.take(frame))

    def finish(self, so_far: AnswerSoFar) -> bytes:
        return self._tell(self._telling.finish(so_far))

    def last(self, so_far: AnswerSoFar) -> bytes:
        response = self._telling.finished(so_far)
        return self._state(f"response.{response['status']}", response)

    def broken(self, error: ErrorBody, so_far: AnswerSoFar) -> bytes:
        """The error in our own words, then in OpenAI's. No event says that an item is done which isn't."""
        failed = self._telling.broken(so_far, error)
        return error_event(error, self._next()) + self._state("response.failed", failed)

    def _tell(self, changes: Iterable[Change]) -> bytes:
        return b"".join([self._event_of(change) for change in changes])

    def _event_of(self, change: Change) -> bytes:
        if change.step == "grown":
            return self._grown(change)
        return self._begun(change) if change.step == "begun" else self._closed(change)

    def _begun(self, change: Change) -> bytes:
        item = change.item
        where = self._where(item)
        added = {"output_index": item.number, "item": item_object(item, self._telling.key, begins=True)}
        events = self._event("response.output_item.added", added)
        if item.kind == "function_call":
            self._deltas[item.number] = self._opening("response.function_call_arguments.delta", where)
            return events
        self._deltas[item.number] = self._opening(f"response.{_PART_EVENTS[item.kind]}.delta", where)
        part = where | {"part": part_object(item, begins=True)}
        return events + self._event("response.content_part.added", part)

    def _grown(self, change: Change) -> bytes:
        item = change.item
        parts = [self._deltas[item.number], orjson.dumps(change.piece)]
        if item.kind == "message":
            told = orjson.dumps(rated_tokens(change.logprobs)) if change.logprobs else b"[]"
            parts += (b',"logprobs":', told)
        parts.append(b',"sequence_number":%d}\n\n' % self._next())
        return b"".join(parts)

    def _closed(self, change: Change) -> bytes:
        item = change.item
        content = self._content_done(item)
        done = {"output_index": item.number, "item": item_object(item, self._telling.key)}
        return content + self._event("response.output_item.done", done)

    def _content_done(self, item: OutputItem) -> bytes:
        where = self._where(item)
        if item.kind == "function_call":
            whole = where | {"name": item.name, "arguments": item.text}
            return self._event("response.function_call_arguments.done", whole)
        part = part_object(item)
        told = {"text": item.text} | ({"logprobs": part["logprobs"]} if item.kind == "message" else {})
        return self._event(f"response.{_PART_EVENTS[item.kind]}.done", where | told) + self._event(
            "response.content_part.done", where | {"part": part}
        )

    def _where(self, item: OutputItem) -> dict[str, Any]:
        where: dict[str, Any] = {"item_id": self._telling.item_id(item), "output_index": item.number}
        return where if item.kind == "function_call" else where | {"content_index": 0}

    def _opening(self, kind: str, members: dict[str, Any]) -> bytes:
        return (
            b"event: %s\ndata: " % kind.encode() + orjson.dumps({"type": kind} | members)[:-1] + b',"delta":'
        )

    def _state(self, kind: str, response: dict[str, Any]) -> bytes:
        return self._event(kind, {"response": response})

    def _event(self, kind: str, members: dict[str, Any]) -> bytes:
        return event(kind, members, self._next())

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence - 1
