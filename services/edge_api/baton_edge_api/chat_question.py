"""A chat completion as the way of an answer needs it: the question, and its two forms of answer."""

from __future__ import annotations

from dataclasses import dataclass

from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, Prologue
from baton_edge_api import sse
from baton_edge_api.answer_objects import whole_answer
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.answers import error_event
from baton_edge_api.best_of import best_of
from baton_edge_api.chat_form import PLAIN, ChatForm
from baton_edge_api.question import AnswerWriter, Question, WholeAnswer


@dataclass(frozen=True)
class ChatQuestion(Question):
    include_usage: bool = False
    form: ChatForm = PLAIN

    def writer(self, envelope: Envelope, created: int) -> AnswerWriter:
        sampling = self.chat.sampling
        if self.chat.stream:
            return ChatStream(envelope.request_id, created, self.form, include_usage=self.include_usage)
        return WholeChat(envelope.request_id, created, self.form, num_written=sampling.n)


class ChatStream:
    """Chunks, then `[DONE]`."""

    def __init__(self, request_id: str, created: int, form: ChatForm, *, include_usage: bool) -> None:
        self._request_id = request_id
        self._created = created
        self._form = form
        self._include_usage = include_usage
        self.data = _not_begun

    def begin(self, prologue: Prologue) -> bytes:
        self._chunks = chunks = sse.ChunkWriter(
            self._request_id, prologue.model, self._created, self._form, include_usage=self._include_usage
        )
        self.data = chunks.data
        return b"".join(map(chunks.role, range(self._form.num_answers)))

    def finish(self, so_far: AnswerSoFar) -> bytes:
        usage = self._chunks.usage(so_far.usage) if self._include_usage else b""
        return self._chunks.finish(so_far.reasons, so_far.citations) + usage

    def last(self, so_far: AnswerSoFar) -> bytes:
        return sse.DONE

    def broken(self, error: ErrorBody, so_far: AnswerSoFar) -> bytes:
        return error_event(error)


def _not_begun(frame: Data) -> bytes:
    raise AssertionError("a stream begins with its prologue")


class WholeChat(WholeAnswer):
    def __init__(self, request_id: str, created: int, form: ChatForm, *, num_written: int) -> None:
        self._request_id = request_id
        self._created = created
        self._form = form
        self._num_written = num_written

    def last(self, so_far: AnswerSoFar) -> bytes:
        chosen = best_of(so_far.answers, self._num_written, self._form.num_answers)
        return whole_answer(
            self._request_id,
            so_far.model,
            self._created,
            [so_far.answers[place] for place in chosen],
            [so_far.reasons[place] for place in chosen],
            so_far.usage,
            so_far.citations,
            self._form,
            prompt=so_far.answers[0].prompt,
        )
