"""A listener to one replica's KV events, as the contract asks of it: applies them in order, asks at a gap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from baton_common.bus import Bus, BusMessage
from baton_contracts import subjects
from baton_contracts.kv_events import KvAsk, KvAskReply, KvChange, KvEvents


class KvMirror:
    def __init__(self, bus: Bus, replica: str) -> None:
        self._bus = bus
        self._replica = replica
        self.messages: list[KvEvents] = []
        self.hashes: set[str] = set()
        self.num_gaps = 0
        self._expected: int | None = None
        self._epoch = ""
        self._changed = asyncio.Event()

    async def listen(self) -> None:
        await self._bus.subscribe(subjects.kv(self._replica), self._on_message)

    async def ask(self) -> KvAskReply:
        payload = KvAsk(asker="mirror").encode()
        return KvAskReply.decode(await self._bus.request(subjects.kv_ask(self._replica), payload, timeout=5))

    async def until(self, holds: Callable[[KvMirror], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds(self):
                self._changed.clear()
                await self._changed.wait()

    def _on_message(self, message: BusMessage) -> None:
        told = KvEvents.decode(message.payload)
        self.messages.append(told)
        if (told.epoch, told.seq) != (self._epoch, self._expected):
            self.num_gaps += 1
            self.hashes.clear()
        self._epoch, self._expected = told.epoch, told.seq + 1
        for change in told.changes:
            self._apply(change)
        self._changed.set()

    def _apply(self, change: KvChange) -> None:
        match change.kind:
            case "stored":
                self.hashes.update(change.block_hashes)
            case "removed":
                self.hashes.difference_update(change.block_hashes)
            case "cleared":
                self.hashes.clear()
