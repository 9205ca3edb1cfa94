"""Request ids, instance ids and what may stand in a NATS subject token.

A request id is 32 lower-case hex digits: the W3C trace id, the last token of every subject that
concerns the request, the ledger's key and the `x-request-id` header, all in one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from functools import lru_cache
from typing import Annotated

from pydantic import StringConstraints

_REQUEST_ID = re.compile(r"[0-9a-f]{32}")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN = r"^[A-Za-z0-9_=-]{1,128}$"

RequestId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
SubjectToken = Annotated[str, StringConstraints(pattern=_TOKEN)]


def new_request_id() -> str:
    """A random id; never all zeros (W3C forbids that trace id)."""
    return secrets.token_hex(16)


def new_instance_id(service: str) -> str:
    """Names one process of a service for its lifetime; a restart is another instance."""
    return f"{service}-{secrets.token_hex(4)}"


def parse_request_id(raw: str) -> str | None:
    """The id a client brought, in canonical form, or None if it can't be one.

    Accepted: 32 hex digits or a UUID, any case. Nothing else can become part of a subject.
    """
    if len(raw) > 36:
        return None
    lowered = raw.lower()
    if _UUID.fullmatch(lowered):
        lowered = lowered.replace("-", "")
    return lowered if _REQUEST_ID.fullmatch(lowered) and lowered.strip("0") else None


def request_id_of(first: str, place: int) -> str:
    """The first has the HTTP request's id; those of the others follow from it."""
    if place == 0:
        return first
    return hashlib.sha256(f"{first}/{place}".encode()).hexdigest()[:32]


def request_ids_of(first: str, num_requests: int) -> tuple[str, ...]:
    return tuple(request_id_of(first, place) for place in range(num_requests))


@lru_cache(4096)
def subject_token(name: str) -> str:
    """Any name as one subject token, reversibly: bytes outside [A-Za-z0-9_-] become `=XX`."""
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in b"_-" else f"={byte:02X}"
        for byte in name.encode()
    )


def name_of_token(token: str) -> str:
    """What `subject_token` made it from."""
    if "=" not in token:
        return token
    first, *escaped = token.split("=")
    parts = (bytes.fromhex(part[:2]) + part[2:].encode() for part in escaped)
    return b"".join((first.encode(), *parts)).decode(errors="replace")
