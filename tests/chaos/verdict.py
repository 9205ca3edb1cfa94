"""What must hold when it is over: nobody hangs, each answer is billed once and as its client was told,
nothing is held any more. Each broken promise is one sentence."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.aio.client import Client

from baton_cli.keys import Operator
from baton_cli.reconcile.collecting import collect
from baton_cli.reconcile.differences import differences
from baton_contracts import subjects
from tests.chaos.clients import Asked, Visit
from tests.chaos.ledger import Row, Rows, rows_of
from tests.chaos.mischief import RECOVERY_SECONDS, Deed
from tests.system.client import question
from tests.system.live_system import LiveSystem

REST_SECONDS = 90.0
LIMITS_SECONDS = 40.0
BUSY_BOOKS_SECONDS = 40.0
SLACK_SECONDS = 1.0
"""A client may note its end before the deed's time is noted."""
COMPARED = ("lost row", "tokens", "doubled", "bill")
"""Where the bus was restarted, spans of that moment are lost: what only they could prove is not asked for."""

_TRACEBACK = re.compile(r"│ Traceback .*\n(?:[^│\n]*│ {2,}.*\n)*(.*)")
"""Of `baton up`'s log: the frames of the stack are indented, what was raised is not."""


class Verdict:
    def __init__(
        self, system: LiveSystem, key: str, visits: Sequence[Visit], deeds: Sequence[Deed], *, began: float
    ) -> None:
        self._system = system
        self._key = key
        self._visits = visits
        self._asked = [one for visit in visits for one in visit.tries]
        self._deeds = deeds
        self._began = began
        self.rows: Rows = {}
        """Of the requests that were asked, once `problems` has looked."""

    def problems(self) -> Iterator[str]:
        yield from self._of_deeds()
        yield from self._of_clients()
        yield from self._of_rest()
        yield from self._of_books()
        yield from self._of_bills()
        yield from self._of_witnesses()
        yield from self._of_limits()
        yield from self._of_logs()

    def _of_deeds(self) -> Iterator[str]:
        for deed in self._deeds:
            if deed.back_after is None:
                yield f"not whole again: {deed.name}"

    def _of_clients(self) -> Iterator[str]:
        for visit in self._visits:
            if not visit.was_let_in:
                yield f"never let in: {visit.tries[-1].request_id}, tried {len(visit.tries)} times"
        for one in self._asked:
            if one.hung:
                yield f"hang: {one.request_id} after {one.heard.seconds:.0f} s ({one.heard.broke or 'slow'})"
            elif not one.ended_well:
                yield f"no right end: {one.request_id} {one.heard}"
            elif one.was_cut_off and not any(closes_connections(deed, one) for deed in self._deeds):
                yield f"cut off, and no edge was gone: {one.request_id} {one.heard.broke}"

    def _of_rest(self) -> Iterator[str]:
        try:
            self._system.wait_ready(seconds=REST_SECONDS)
            self._system.wait_at_rest(seconds=REST_SECONDS)
        except AssertionError as error:
            yield f"not at rest: {str(error)[-600:]}"

    def _of_books(self) -> Iterator[str]:
        """All records are in the database; a lost gateway's are stored when its lease is over."""
        whole = [one.request_id for one in self._asked if one.heard.complete]
        give_up_at = time.monotonic() + BUSY_BOOKS_SECONDS
        while True:
            waiting, rows = asyncio.run(_num_records_waiting(self._system)), rows_of(self._system.home)
            if not waiting and all(_ends(rows.get(name, [])) for name in whole):
                break
            if time.monotonic() > give_up_at:
                if waiting:
                    yield f"books: {waiting} records wait for after_answer"
                break
            time.sleep(0.5)
        asked = {one.request_id for one in self._asked}
        self.rows = {name: of_request for name, of_request in rows.items() if name in asked}

    def _of_bills(self) -> Iterator[str]:
        """The rows of each answer that came whole add up to what its client was told, one of them ends it."""
        for one in self._asked:
            if one.heard.complete:
                yield from _of_bill(one, self.rows.get(one.request_id, []))

    def _of_witnesses(self) -> Iterator[str]:
        operator = Operator.decode(json.dumps(self._system.operator()))
        found = asyncio.run(collect(operator, since=self._began))
        for one in differences(found, since=self._began):
            if one.kind in COMPARED:
                yield f"{one.kind}: {one.request_id} {one.text}"

    def _of_limits(self) -> Iterator[str]:
        """Seats and money that requests held are given back; those of an edge that died, when its lease is
        over and somebody asks."""
        give_up_at = time.monotonic() + LIMITS_SECONDS
        asked = {"authorization": f"Bearer {self._key}", "cache-control": "no-cache"}
        while held := asyncio.run(_held(self._system)):
            if time.monotonic() > give_up_at:
                yield f"limits: still held is {held}"
                return
            self._system.post(question("Still there?", stream=False, max_tokens=1), **asked)
            time.sleep(2)

    def _of_logs(self) -> Iterator[str]:
        """A process that fails in its code says where."""
        for error, count in Counter(_TRACEBACK.findall(self._system.log)).items():
            yield f"traceback {count}×: {error}"


def closes_connections(deed: Deed, one: Asked) -> bool:
    """An edge that was gone, or about to go, at some time of the request."""
    gone_until = deed.at + (RECOVERY_SECONDS if deed.back_after is None else deed.back_after)
    ended = one.began + one.heard.seconds
    return deed.victim == "edge_api" and one.began <= gone_until and ended >= deed.at - SLACK_SECONDS


def _ends(rows: Sequence[Row]) -> int:
    return sum(row.outcome == "finished" for row in rows)


def _of_bill(one: Asked, rows: Sequence[Row]) -> Iterator[str]:
    if _ends(rows) != 1:
        outcomes = Counter(row.outcome for row in rows)
        yield f"ledger: {one.request_id} came whole and has the rows {dict(outcomes)}"
        return
    told = one.heard.usage or {}
    for name in ("prompt_tokens", "completion_tokens"):
        booked = sum(getattr(row, name) for row in rows)
        if booked != told.get(name):
            yield f"ledger: {one.request_id} was told {told.get(name)} {name}, booked are {booked}"


@asynccontextmanager
async def _bus(system: LiveSystem) -> AsyncGenerator[Client]:
    operator = system.operator()
    client = await nats.connect(operator["nats_url"], user=operator["user"], password=operator["password"])
    try:
        yield client
    finally:
        await client.close()


async def _num_records_waiting(system: LiveSystem) -> int:
    async with _bus(system) as client:
        return (await client.jetstream().stream_info(subjects.STREAM_AFTER)).state.messages


async def _held(system: LiveSystem) -> dict[str, Any]:
    held: dict[str, Any] = {}
    async with _bus(system) as client:
        try:
            bucket = await client.jetstream().key_value("baton_limits")
            names = [name for name in await bucket.keys() if name.startswith("use.")]
        except nats.js.errors.NoKeysError:
            return {}
        for name in names:
            entry = await bucket.get(name)
            slots = json.loads(entry.value or b"{}").get("slots", {})
            if of_edges := {edge: slot for edge, slot in slots.items() if _is_held(slot)}:
                held[name] = of_edges
    return held


def _is_held(slot: dict[str, Any]) -> bool:
    return bool(slot.get("seats") or slot.get("held_picos"))
