"""The stored conversation, from the books. Without it a follow-up question would get a wrong answer, so its
absence is an error, not a shorter prompt."""

from __future__ import annotations

from baton_common.bus import Bus
from baton_common.errors import BusError, BusTimeout, NoResponders, RequestFailed
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.prompt import Message, Part
from baton_contracts.queries import BooksQuery, BooksReply, StoredTurn
from baton_contracts.records import StoredMessage


async def stored_history(bus: Bus, envelope: Envelope, seconds: float) -> tuple[Message, ...]:
    """Raises RequestFailed, naming after_answer."""
    query = BooksQuery(
        kind="conversation", tenant_id=envelope.tenant.tenant_id, conversation_id=envelope.conversation_id
    )
    try:
        payload = await bus.request(subjects.books(envelope.request_id), query.encode(), timeout=seconds)
        reply = BooksReply.decode(payload)
    except NoResponders:
        raise _unavailable("no_responder", "No instance of after_answer is running") from None
    except BusTimeout:
        raise _unavailable("stop_unresponsive", f"after_answer did not answer in {seconds:g} s") from None
    except (BusError, MalformedMessage):
        raise _unavailable("stop_failed", "after_answer gave no usable answer") from None
    if reply.error:
        raise RequestFailed(reply.error)
    return tuple(message for turn in reply.turns for message in _messages(turn))


def _messages(turn: StoredTurn) -> list[Message]:
    """A turn that ended before its first word adds nothing but a question without an answer: left out."""
    if not turn.answer and not turn.tool_calls:
        return []
    answer = StoredMessage(role="assistant", content=turn.answer, tool_calls=turn.tool_calls)
    return [_message(said) for said in (*turn.asked, answer)]


def _message(said: StoredMessage) -> Message:
    no_words = said.tool_calls and not said.content
    return Message(
        role=said.role,
        parts=() if no_words else (Part(text=said.content, origin="history"),),
        name=said.name,
        tool_calls=said.tool_calls,
        tool_call_id=said.tool_call_id,
    )


def _unavailable(code: str, what: str) -> RequestFailed:
    text = (
        f"{what}, so the conversation can't be continued. Try again shortly, or send its messages yourself."
    )
    return RequestFailed(
        ErrorBody(
            code=code,  # pyright: ignore[reportArgumentType]  # checked by pydantic
            message=text,
            stop="after_answer",
            retry_after_seconds=1,
        )
    )
