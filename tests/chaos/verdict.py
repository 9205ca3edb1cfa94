"""What must hold when it is over: nobody hangs, each answer is billed once and as its client was told,
nothing is held any more. Each broken promise is one sentence."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nats

from baton_cli.keys import Operator
from baton_cli.reconcile.collecting import collect
from baton_cli.reconcile.differences import differences
from tests.chaos.clients import Asked
from tests.system.client import question
from tests.system.live_system import LiveSystem

REST_SECONDS = 90.0
LIMITS_SECONDS = 40.0
BUSY_BOOKS_SECONDS = 30.0
COMPARED = ("lost row", "tokens", "doubled", "bill")
"""Where the bus was restarted, spans of that moment are lost: what only they could prove is not asked for."""


def problems(system: LiveSystem, key: str, asked: list[Asked], *, began: float) -> list[str]:
    return [
        *_of_clients(asked),
        *_of_rest(system),
        *_of_bills(system, key, asked),
        *_of_witnesses(system, began),
        *_of_limits(system, key),
    ]


def _of_clients(asked: list[Asked]) -> Iterator[str]:
    for one in asked:
        if one.hung:
            yield f"hang: {one.request_id} after {one.heard.seconds:.0f} s ({one.heard.broke or 'slow'})"
        elif not one.ended_well:
            yield f"no right end: {one.request_id} {one.heard}"


def _of_rest(system: LiveSystem) -> Iterator[str]:
    try:
        system.wait_ready(seconds=REST_SECONDS)
        system.wait_at_rest(seconds=REST_SECONDS)
    except AssertionError as error:
        yield f"not at rest: {str(error)[-600:]}"


def _of_bills(system: LiveSystem, key: str, asked: list[Asked]) -> Iterator[str]:
    """The rows of each answer that came whole add up to what its client was told, one of them ends it."""
    whole = [one for one in asked if one.heard.complete]
    with ThreadPoolExecutor(8) as pool:
        for one, rows in zip(whole, pool.map(lambda one: _rows(system, key, one), whole), strict=True):
            yield from _of_bill(one, rows)


def _rows(system: LiveSystem, key: str, one: Asked) -> list[dict[str, Any]]:
    """As they are, or once there are any: a lost gateway's are stored when its lease is over."""
    give_up_at = time.monotonic() + BUSY_BOOKS_SECONDS
    while True:
        answer = system.get("/v1/usage", key=key, request_id=one.request_id)
        rows: list[dict[str, Any]] = answer.json()["data"] if answer.status_code == 200 else []
        if any(row["outcome"] == "finished" for row in rows) or time.monotonic() > give_up_at:
            return rows
        time.sleep(0.5)


def _of_bill(one: Asked, rows: list[dict[str, Any]]) -> Iterator[str]:
    outcomes = Counter(row["outcome"] for row in rows)
    if outcomes["finished"] != 1:
        yield f"ledger: {one.request_id} came whole and has the rows {dict(outcomes)}"
        return
    by_attempt: dict[int, int] = defaultdict(int)
    for row in rows:
        by_attempt[row["attempt"]] += 1
    if max(by_attempt.values()) > 1:
        yield f"ledger: {one.request_id} has an attempt twice: {dict(by_attempt)}"
    told = one.heard.usage or {}
    for name in ("prompt_tokens", "completion_tokens"):
        booked = sum(row["usage"][name] for row in rows)
        if booked != told.get(name):
            yield f"ledger: {one.request_id} was told {told.get(name)} {name}, booked are {booked}"


def _of_witnesses(system: LiveSystem, began: float) -> Iterator[str]:
    operator = Operator.decode(json.dumps(system.operator()))
    found = asyncio.run(collect(operator, since=began))
    for one in differences(found, since=began):
        if one.kind in COMPARED:
            yield f"{one.kind}: {one.request_id} {one.text}"


def _of_limits(system: LiveSystem, key: str) -> Iterator[str]:
    """Seats and money that requests held are given back; those of an edge that died, when its lease is over
    and somebody asks."""
    give_up_at = time.monotonic() + LIMITS_SECONDS
    asked = {"authorization": f"Bearer {key}", "cache-control": "no-cache"}
    while held := asyncio.run(_held(system)):
        if time.monotonic() > give_up_at:
            yield f"limits: still held is {held}"
            return
        system.post(question("Still there?", stream=False, max_tokens=1), **asked)
        time.sleep(2)


async def _held(system: LiveSystem) -> dict[str, Any]:
    operator = system.operator()
    client = await nats.connect(operator["nats_url"], user=operator["user"], password=operator["password"])
    try:
        bucket = await client.jetstream().key_value("baton_limits")
        held: dict[str, Any] = {}
        for name in [name for name in await bucket.keys() if name.startswith("use.")]:
            entry = await bucket.get(name)
            slots = json.loads(entry.value or b"{}").get("slots", {})
            if of_edges := {edge: slot for edge, slot in slots.items() if _is_held(slot)}:
                held[name] = of_edges
    except nats.js.errors.NoKeysError:
        return {}
    else:
        return held
    finally:
        await client.close()


def _is_held(slot: dict[str, Any]) -> bool:
    return bool(slot.get("seats") or slot.get("held_picos"))
