"""A completion as the way of an answer needs it: a relay request a prompt, and the forms of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, Prologue
from baton_contracts.prompt import ChatRequest
from baton_contracts.records import AfterRecord
from baton_edge_api import sse
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.answers import error_event
from baton_edge_api.best_of import best_of
from baton_edge_api.completion_objects import CompletionChunks, CompletionForm, whole_completion
from baton_edge_api.question import AnswerWriter, Ending, Question, WholeAnswer

_OWN_NAMES = {
    "messages": "prompt",
    "top_logprobs": "logprobs",
    "max_completion_tokens": "max_tokens",
}
"""Parameters that the relay knows by a chat's names."""


@dataclass(frozen=True)
class CompletionQuestion(Question):
    """`chat` is the request of the first prompt."""

    more_chats: tuple[ChatRequest, ...] = ()
    form: CompletionForm = field(default_factory=CompletionForm)
    include_usage: bool = False

    @property
    def more_requests(self) -> Sequence[ChatRequest]:
        return self.more_chats

    @property
    def chats(self) -> tuple[ChatRequest, ...]:
        return (self.chat, *self.more_chats)

    def with_chats(self, chats: Sequence[ChatRequest]) -> Self:
        prompts = tuple(chat.messages[0].text for chat in chats)
        form = replace(self.form, prompts=prompts)
        return replace(self, chat=chats[0], more_chats=tuple(chats[1:]), form=form)

    def with_chat(self, **fields: object) -> Self:
        return self.with_chats([chat.model_copy(update=fields) for chat in self.chats])

    def writer(self, envelope: Envelope, created: int) -> AnswerWriter:
        if self.chat.stream:
            return CompletionStream(envelope.request_id, created, self.form, include_usage=self.include_usage)
        return WholeCompletion(envelope.request_id, created, self.form)

    def records(
        self, envelope: Envelope, so_far: AnswerSoFar, ending: Ending, asked_at: float
    ) -> Sequence[AfterRecord]:
        """A completion is no conversation: nothing is kept but its ledger rows."""
        return ()

    def in_own_words(self, error: ErrorBody) -> ErrorBody:
        own = _OWN_NAMES.get(error.param or "")
        return error.model_copy(update={"param": own}) if own else error


class CompletionStream:
    """Chunks, then `[DONE]`."""

    def __init__(self, request_id: str, created: int, form: CompletionForm, *, include_usage: bool) -> None:
        self._request_id = request_id
        self._created = created
        self._form = form
        self._include_usage = include_usage

    def begin(self, prologue: Prologue) -> bytes:
        self._chunks = chunks = CompletionChunks(
            self._request_id, prologue.model, self._created, self._form, include_usage=self._include_usage
        )
        self.data = chunks.data
        return b""

    def data(self, frame: Data) -> bytes:
        raise AssertionError("a stream begins with its prologue")

    def finish(self, so_far: AnswerSoFar) -> bytes:
        usage = self._chunks.usage(so_far.usage) if self._include_usage else b""
        return self._chunks.finish(so_far.reasons) + usage

    def last(self, so_far: AnswerSoFar) -> bytes:
        return sse.DONE

    def broken(self, error: ErrorBody, so_far: AnswerSoFar) -> bytes:
        return error_event(error)


class WholeCompletion(WholeAnswer):
    def __init__(self, request_id: str, created: int, form: CompletionForm) -> None:
        self._request_id = request_id
        self._created = created
        self._form = form

    def last(self, so_far: AnswerSoFar) -> bytes:
        form = self._form
        return whole_completion(
            self._request_id,
            so_far.model,
            self._created,
            so_far.answers,
            so_far.reasons,
            so_far.usage,
            best_of(so_far.answers, form.num_written, form.num_answers),
            form,
        )
