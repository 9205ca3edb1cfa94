"""Questions beside the relay: the books, the console, documents, the embedder. One request, one reply.

Owns what happens when the service behind is missing, late or wrong. Knows nothing of HTTP.
"""

from __future__ import annotations

from typing import TypeVar

from baton_common.bus import Bus
from baton_common.errors import BusError, BusTimeout, BusUnavailable, NoResponders, RequestFailed
from baton_contracts.base import MalformedMessage, WireModel
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.queries import BooksReply, ConsoleReply, EmbedReply, IngestReply
from baton_contracts.subjects import Service

R = TypeVar("R", BooksReply, ConsoleReply, EmbedReply, IngestReply)


async def ask(bus: Bus, subject: str, query: WireModel, reply: type[R], *, to: Service, seconds: float) -> R:
    """Raises RequestFailed with the error that the service gave, or one that names it."""
    try:
        answer = reply.decode(await bus.request(subject, query.encode(), timeout=seconds))
    except NoResponders:
        raise _failed("no_responder", f"No instance of {to} is running.", to) from None
    except BusTimeout:
        raise _failed("stop_unresponsive", f"{to} did not answer within {seconds:g} s.", to) from None
    except BusUnavailable:
        raise _failed("bus_unavailable", f"The bus is away, so {to} can't be reached.", to) from None
    except (BusError, MalformedMessage) as error:
        raise _failed("stop_failed", f"{to} could not be asked ({type(error).__name__}).", to) from None
    if answer.error:
        raise RequestFailed(answer.error)
    return answer


def _failed(code: ErrorCode, text: str, to: Service) -> RequestFailed:
    return RequestFailed(ErrorBody(code=code, message=text, stop=to, retry_after_seconds=1))
