"""The engine's KV events on the bus: numbered messages of bounded size; when asked, all is told again.

    engine's thread ── batch of a step ──► event loop: changes that wait ──► kv.REPLICA

Owns the numbers and what waits to be sent. What waits is bounded: if the bus is away, or slower than the
cache changes, it is dropped and all is told anew later, which mends every gap. Knows nothing of who listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from baton_common.errors import BusError, RequestFailed
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.kv_events import KvAsk, KvAskReply, KvChange, KvEvents
from baton_engine import BlocksRemoved, BlocksStored, EngineError, KVEvent, KVEventBatch
from baton_engine_worker.engine_face import Engine

log = logging.getLogger(__name__)

MAX_HASHES_A_MESSAGE = 2048
"""About 140 kB of JSON: far from the bus's limit, and short enough not to hold up frames."""
WAITING_PER_BLOCK = 4
"""Hashes that may wait, for each block of the pool: the whole state, and every block changed once over it."""
TELL_ALL_SECONDS = 1.0
"""All is told at most this often, however many ask."""


class KvPublisher:
    def __init__(self, node: Node, engine: Engine) -> None:
        self._node = node
        self._engine = engine
        self._subject = subjects.kv(node.instance)
        self._waiting: deque[KvChange] = deque()
        self._num_waiting = 0
        self._max_waiting = 0
        self._block_size = 16
        self._awaits_cleared = True
        """Until the next `cleared`, what comes adds to a state that was never told."""
        self._something_waits = asyncio.Event()
        self._asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.epoch = ""
        self.next_seq = 0

    async def run(self) -> None:
        """From the engine's readiness on, until cancelled."""
        self._max_waiting = WAITING_PER_BLOCK * self._engine.stats().kv_blocks_total
        self._asked.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_all_when_asked())
            tasks.create_task(self._send_what_waits())

    async def answer(self, _subject: str, ask: KvAsk) -> KvAskReply:
        if self._engine.state != "ready":
            text = f"{self._node.instance} has no KV blocks to tell of: its engine is {self._engine.state}."
            raise RequestFailed.because("no_ready_replica", text)
        log.debug("%s asks for all KV blocks", ask.asker)
        self._asked.set()
        return KvAskReply(epoch=self.epoch, next_seq=self.next_seq)

    async def _tell_all_when_asked(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                self._engine.on_kv_event(self._from_engine)
            except EngineError as error:
                log.debug("no KV events: %s", error)
            await asyncio.sleep(TELL_ALL_SECONDS)

    def _from_engine(self, batch: KVEventBatch) -> None:
        """In the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self._take, batch)
        except RuntimeError:
            log.debug("the event loop has ended; KV events had nobody to go to")

    def _take(self, batch: KVEventBatch) -> None:
        self.epoch, self._block_size = batch.epoch, batch.block_size
        for change in map(_change, batch.events):
            if change.kind == "cleared":
                self._drop()  # undone by it
                self._awaits_cleared = False
            if not self._awaits_cleared:
                self._waiting.append(change)
                self._num_waiting += len(change.block_hashes)
        if self._num_waiting > self._max_waiting:
            log.warning("%d KV events wait to be sent; all will be told anew", self._num_waiting)
            self._start_over()
        elif self._waiting:
            self._something_waits.set()

    def _drop(self) -> None:
        self._waiting.clear()
        self._num_waiting = 0

    def _start_over(self) -> None:
        self._drop()
        self._awaits_cleared = True
        self._asked.set()

    async def _send_what_waits(self) -> None:
        while True:
            await self._something_waits.wait()
            self._something_waits.clear()
            while changes := self._next_changes():
                await self._send(changes)

    async def _send(self, changes: tuple[KvChange, ...]) -> None:
        message = KvEvents(
            replica=self._node.instance,
            epoch=self.epoch,
            seq=self.next_seq,
            block_size=self._block_size,
            changes=changes,
        )
        self.next_seq += 1
        try:
            await self._node.bus.publish(self._subject, message.encode())
        except BusError as error:
            log.debug("KV events not sent: %s", error)
            self._start_over()

    def _next_changes(self) -> tuple[KvChange, ...]:
        """As many as one message holds, out of what waits; a run that is too long is cut."""
        taken: list[KvChange] = []
        room = MAX_HASHES_A_MESSAGE
        while self._waiting and (room > 0):
            change = self._waiting.popleft()
            fits, rest = _cut(change, room)
            if rest is not None:
                self._waiting.appendleft(rest)
            taken.append(fits)
            room -= len(fits.block_hashes)
        self._num_waiting -= MAX_HASHES_A_MESSAGE - room
        return tuple(taken)


def _change(event: KVEvent) -> KvChange:
    match event:
        case BlocksStored(parent, hashes):
            return KvChange(
                kind="stored", parent_hash=parent.hex(), block_hashes=tuple(one.hex() for one in hashes)
            )
        case BlocksRemoved(hashes):
            return KvChange(kind="removed", block_hashes=tuple(one.hex() for one in hashes))
        case _:
            return KvChange(kind="cleared")


def _cut(change: KvChange, room: int) -> tuple[KvChange, KvChange | None]:
    hashes = change.block_hashes
    if len(hashes) <= room:
        return change, None
    parent = hashes[room - 1] if change.kind == "stored" else None
    rest = KvChange(kind=change.kind, parent_hash=parent, block_hashes=hashes[room:])
    return change.model_copy(update={"block_hashes": hashes[:room]}), rest
