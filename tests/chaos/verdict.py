"""Looks at a system that has been shot at, once it is over, and says which promises were broken.

Knows where each is to be seen: at the clients, in the books, on the bus, in the log; promises.py judges."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager

import httpx
import nats
import nats.errors
from nats.aio.client import Client

from baton_cli.errors import CliError
from baton_cli.operator_bus import Operator
from baton_cli.reconcile.collecting import collect
from baton_common.buckets import read_bucket
from baton_contracts import subjects
from baton_contracts.limits import AccountState, use_entry
from tests.chaos import promises
from tests.chaos.books import Books, Row, books_of
from tests.chaos.clients import Visit
from tests.chaos.mischief import Deed
from tests.system.client import question
from tests.system.live_system import LiveSystem, eventually

REST_SECONDS = 90.0
LIMITS_SECONDS = 40.0
SPENDING_SECONDS = 150.0
BETWEEN_ASKING_SECONDS = 2.0
BUSY_BOOKS_SECONDS = 40.0


class Verdict:
    def __init__(
        self,
        system: LiveSystem,
        key: str,
        visits: Sequence[Visit],
        deeds: Sequence[Deed],
        *,
        began: float,
        num_replicas: int,
    ) -> None:
        self._system = system
        self._key = key
        self._visits = visits
        self._asked = [one for visit in visits for one in visit.tries]
        self._deeds = deeds
        self._began = began
        self._num_replicas = num_replicas
        self.books = Books()
        """Once `problems` has looked."""
        self.num_witnessed = 0
        """Attempts of which an engine told, once `problems` has looked."""

    def problems(self) -> Iterator[str]:
        yield from promises.of_deeds(self._deeds)
        yield from promises.of_clients(self._visits, self._deeds)
        for look in (self._of_rest, self._of_books, self._of_witnesses, self._of_limits):
            yield from _looked(look)
        yield from promises.of_logs(self._system.log)

    def _of_rest(self) -> Sequence[str]:
        self._system.wait_ready(seconds=REST_SECONDS)
        eventually(self._has_all_replicas, "all replicas are ready", seconds=REST_SECONDS)
        self._system.wait_at_rest(seconds=REST_SECONDS)
        return ()

    def _has_all_replicas(self) -> bool:
        return self._system.metric("baton:replica_ready") == self._num_replicas

    def _of_books(self) -> Iterator[str]:
        """All records are in the database; a lost gateway's are stored when its lease is over."""
        whole = [one.request_id for one in self._asked if one.heard.complete]
        give_up_at = time.monotonic() + BUSY_BOOKS_SECONDS
        while True:
            waiting, self.books = asyncio.run(_num_records_waiting(self._system)), self._books()
            if not waiting and all(_has_ended(self.books.rows.get(name, [])) for name in whole):
                break
            if time.monotonic() > give_up_at:
                if waiting:
                    yield f"books: {waiting} records wait for after_answer"
                break
            time.sleep(0.5)  # another process writes the books: nothing tells but looking
        yield from promises.of_books(self._asked, self.books)

    def _books(self) -> Books:
        return books_of(self._system.home)

    def _of_witnesses(self) -> Iterator[str]:
        operator = Operator.decode(json.dumps(self._system.operator()))
        found = asyncio.run(collect(operator, since=self._began))
        self.num_witnessed = len(found.runs)
        yield from promises.of_witnesses(found, since=self._began)

    def _of_limits(self) -> Iterator[str]:
        """Seats and money that requests held are given back, and what they cost is charged; what an edge that
        died held is settled by another one, some while after its lease is over."""
        give_up_at = time.monotonic() + LIMITS_SECONDS
        asked = {"authorization": f"Bearer {self._key}", "cache-control": "no-cache"}
        while held := promises.still_held(asyncio.run(_use(self._system))):
            if time.monotonic() > give_up_at:
                yield f"limits: still held is {held}"
                return
            self._system.post(question("Still there?", stream=False, max_tokens=1), **asked)
            time.sleep(BETWEEN_ASKING_SECONDS)  # the pace of its own questions
        yield from self._of_spending()

    def _of_spending(self) -> Iterator[str]:
        """Of an answer whose end no edge heard the ledger is asked, some while later."""
        give_up_at = time.monotonic() + SPENDING_SECONDS
        while found := [*promises.of_spending(asyncio.run(_use(self._system)), self._books().costs)]:
            if time.monotonic() > give_up_at:
                yield from found
                return
            time.sleep(0.5)  # other processes: nothing tells but looking


def _looked(look: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Where nothing can be seen, that is what is found; the others are still looked at."""
    try:
        yield from look()
    except (AssertionError, CliError, OSError, httpx.HTTPError, nats.errors.Error, sqlite3.Error) as error:
        yield f"{look.__name__.removeprefix('_of_')}: {str(error)[-600:] or repr(error)}"


def _has_ended(rows: Sequence[Row]) -> bool:
    return any(row.outcome == "finished" for row in rows)


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


async def _use(system: LiveSystem) -> dict[str, AccountState]:
    """What was used of each limit. A key that was limited and used has its account."""
    async with _bus(system) as client:
        entries = read_bucket(client.jetstream(), subjects.BUCKET_LIMITS, use_entry(">"))
        return {entry.name: AccountState.decode(entry.value or b"{}") async for entry in entries}
