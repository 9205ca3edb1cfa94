"""The ids of the requests that one HTTP request becomes. Pure."""

from __future__ import annotations

import hashlib


def request_id_of(first: str, place: int) -> str:
    """The first has the HTTP request's id; those of the others follow from it."""
    if place == 0:
        return first
    return hashlib.sha256(f"{first}/{place}".encode()).hexdigest()[:32]


def request_ids_of(first: str, num_requests: int) -> tuple[str, ...]:
    return tuple(request_id_of(first, place) for place in range(num_requests))
