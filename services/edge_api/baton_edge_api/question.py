"""What an endpoint that is answered by the relay must say: the request itself, and the form of its answer.

Owns the two faces between the one way of an answer (relay_answer) and the endpoints' forms: `Question` and
`AnswerWriter`. Knows nothing of HTTP or of any single endpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, Prologue
from baton_contracts.prompt import ChatRequest, Message
from baton_contracts.records import AfterRecord, ConversationRecord, StoredMessage
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.exchange import Inside


class AnswerWriter(Protocol):
    """One answer in one endpoint's form."""

    def begin(self, prologue: Prologue) -> bytes:
        """What a stream begins with."""
        ...

    def data(self, frame: Data) -> bytes:
        """What one frame adds. The path of a token: nothing here may be slow."""
        ...

    def finish(self, so_far: AnswerSoFar) -> bytes:
        """The answer has come to its end: all that goes out before it is kept."""
        ...

    def last(self, so_far: AnswerSoFar) -> bytes:
        """What goes out when it is kept; of a whole answer, its body."""
        ...

    def broken(self, error: ErrorBody, so_far: AnswerSoFar) -> bytes:
        """The last bytes of a stream that has begun and can't go on."""
        ...


class WholeAnswer(ABC):
    """An AnswerWriter whose only bytes are the last ones: one object at the end."""

    def begin(self, prologue: Prologue) -> bytes:
        return b""

    def data(self, frame: Data) -> bytes:
        return b""

    def finish(self, so_far: AnswerSoFar) -> bytes:
        return b""

    @abstractmethod
    def last(self, so_far: AnswerSoFar) -> bytes: ...

    def broken(self, error: ErrorBody, so_far: AnswerSoFar) -> bytes:
        return b""  # nothing of it has been sent: the error is an answer of its own


@dataclass(frozen=True)
class Ending:
    """How an answer ended that has begun."""

    cut_short: bool = False
    error: ErrorBody | None = None
    """Why it was cut short; None where it was not."""


@dataclass(frozen=True)
class Question(ABC):
    """A validated request: what goes over the relay, and what only the edge needs."""

    chat: ChatRequest
    conversation_id: str | None
    ignored: tuple[str, ...]
    """Names of parameters without effect, safe to stand in a header."""

    def with_chat(self, **fields: object) -> Self:
        """Goes over the relay with these fields instead."""
        return replace(self, chat=self.chat.model_copy(update=fields))

    def made_inside(self, inside: Inside) -> Self:
        """Asked by the edge itself: not served before others of that priority, whatever it asked for."""
        return self.with_chat(priority=max(inside.priority, self.chat.priority))

    @property
    def more_requests(self) -> Sequence[ChatRequest]:
        """What else is asked of the relay for the same answer; their answers follow those to `chat`."""
        return ()

    @property
    def num_answers(self) -> int:
        """That the relay will write."""
        return self.chat.sampling.n * (1 + len(self.more_requests))

    def in_own_words(self, error: ErrorBody) -> ErrorBody:
        """An error of the relay, its parameter named as this endpoint names it."""
        return error

    @abstractmethod
    def writer(self, envelope: Envelope, created: int) -> AnswerWriter:
        """`created` is in Unix seconds."""

    def records(
        self, envelope: Envelope, so_far: AnswerSoFar, ending: Ending, asked_at: float
    ) -> Sequence[AfterRecord]:
        """What is kept of an answer that has begun: here its exchange, with the first of its answers."""
        return (conversation_record(self.chat, envelope, so_far, ending, asked_at),)


def conversation_record(
    chat: ChatRequest, envelope: Envelope, so_far: AnswerSoFar, ending: Ending, asked_at: float
) -> ConversationRecord:
    first, end = so_far.answers[0], so_far.end
    return ConversationRecord(
        request_id=envelope.request_id,
        run_id=envelope.run_id,
        conversation_id=envelope.conversation_id,
        tenant=envelope.tenant,
        model=so_far.model,
        asked=tuple(_stored(message) for message in chat.messages),
        answer=first.text,
        tool_calls=first.whole_calls,
        cut_short=ending.cut_short,
        finish_reason=end.finish_reason if end else None,
        created_at=asked_at,
    )


def _stored(message: Message) -> StoredMessage:
    return StoredMessage(
        role=message.role,
        content=message.text,
        name=message.name,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
    )
