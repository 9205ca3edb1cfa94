"""Ids of responses and of their items: each says which request it belongs to.

`resp_` + request id + run id. An item has the same 40 digits between its kind and its place: `i` for the
input, `o` for the output, and a number.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from baton_contracts.envelope import Envelope

_RESPONSE = re.compile(r"resp_([0-9a-f]{40})")
_ITEM = re.compile(r"[a-z]{2,4}_([0-9a-f]{40})([io])([0-9]{1,5})")

PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


@dataclass(frozen=True)
class ItemPlace:
    """Where an item stands."""

    response_id: str
    is_input: bool
    number: int


def response_key(envelope: Envelope) -> str:
    return envelope.request_id + envelope.run_id


def new_key(request_id: str) -> str:
    """Of a response whose first run has not begun."""
    return request_id + secrets.token_hex(4)


def key_of(response: str) -> str | None:
    found = _RESPONSE.fullmatch(response)
    return found[1] if found else None


def response_id(key: str) -> str:
    return f"resp_{key}"


def item_id(kind: str, key: str, number: int, *, is_input: bool) -> str:
    return f"{PREFIXES[kind]}_{key}{'i' if is_input else 'o'}{number}"


def request_id_of(response: str) -> str | None:
    """The request that a response answered; None if this is no id of a response."""
    key = key_of(response)
    return key[:32] if key else None


def place_of(item: str) -> ItemPlace | None:
    found = _ITEM.fullmatch(item)
    if found is None:
        return None
    return ItemPlace(response_id(found[1]), found[2] == "i", int(found[3]))
