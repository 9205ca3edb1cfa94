"""One HTTP request and what the edge knows of it before anything else: its id, its times, its caller.

Owns the choice of the request id. Knows nothing of routes or of NATS.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Scope

from baton_common.errors import RequestFailed
from baton_contracts.envelope import Tenant
from baton_contracts.identifiers import new_request_id, parse_request_id

LAST_PRIORITY = 1000
"""As far back as a request can stand."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


def _nothing() -> None:
    return None


@dataclass
class Exchange:
    request_id: str
    started: float
    """Unix time in seconds at which the first byte of the request was seen."""
    parent_span_id: str | None = None
    abort: Callable[[], None] = _nothing
    """Cuts the connection, whatever still waits to be written."""
    body_read: bool = False
    status: int = 0
    """Of the answer, once it has begun."""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    """That its answer will have, whatever it becomes: how the limits stand."""


@dataclass
class Promise:
    """A client has been given the id of a response that is yet to be made."""

    key: str
    """Of the response: the run that makes it has another id."""
    created_at: float
    deadline: float
    """Unix times in seconds."""
    num_events: int = 2
    """That its stream has begun with: that it was created, and is queued."""
    abandoned: bool = False
    """It is made elsewhere, or anew: nothing of this answer is kept."""


@dataclass(frozen=True)
class Inside:
    """Stands in the scope of a request that the edge makes of itself: nobody outside can put it there."""

    tenant: Tenant
    priority: int = LAST_PRIORITY
    promise: Promise | None = None


def inside_of(scope: Scope) -> Inside | None:
    inside = scope.get("baton.inside")
    assert inside is None or isinstance(inside, Inside)
    return inside


def exchange_of(scope: Scope) -> Exchange:
    exchange = scope["baton.exchange"]
    assert isinstance(exchange, Exchange)
    return exchange


def header(scope: Scope, name: bytes) -> str | None:
    """The value of a header that stands once; None otherwise."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else None


def listed_header(scope: Scope, name: bytes) -> str | None:
    """Of a header that is a list: given several times it is one list. None: it isn't given."""
    values = [value for key, value in scope["headers"] if key == name]
    return b",".join(values).decode("latin-1") if values else None


def choose_request_id(scope: Scope, is_in_flight: Callable[[str], bool]) -> tuple[str, str | None]:
    """The id and the client's span, if it brought one. Raises RequestFailed if the client's id can't be one.

    A trace id may cover several requests, so one that is under way is left alone; an `x-request-id` is meant.
    """
    given = [value for key, value in scope["headers"] if key == b"x-request-id"]
    if given:
        parsed = parse_request_id(given[0].decode("latin-1")) if len(given) == 1 else None
        if parsed is None:
            text = "x-request-id must be 32 hex digits or a UUID, given once. Leave it out to get one."
            raise RequestFailed.because("invalid_request_id", text, param="x-request-id")
        return parsed, None
    trace = _TRACEPARENT.fullmatch(header(scope, b"traceparent") or "")
    if trace and parse_request_id(trace[1]) and trace[2].strip("0") and not is_in_flight(trace[1]):
        return trace[1], trace[2]
    return new_request_id(), None
