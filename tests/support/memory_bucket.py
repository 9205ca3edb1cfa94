"""A bucket of versioned values in memory that can lose races, lose answers and go away."""

from __future__ import annotations

from dataclasses import dataclass, field

from baton_common.errors import BusError, BusTimeout
from baton_contracts.limits import AccountState
from baton_edge_api.bucket import Conflict


@dataclass
class MemoryBucket:
    values: dict[str, tuple[bytes, int]] = field(default_factory=dict[str, tuple[bytes, int]])
    away: bool = False
    lose_answer: bool = False
    """The next write is carried out, but its answer does not come."""
    num_reads: int = 0
    num_writes: int = 0

    async def read(self, entry: str) -> tuple[bytes, int]:
        if self.away:
            raise BusError(entry, "away")
        self.num_reads += 1
        return self.values.get(entry, (b"", 0))

    async def replace(self, entry: str, value: bytes, revision: int) -> int:
        if self.away:
            raise BusError(entry, "away")
        if self.values.get(entry, (b"", 0))[1] != revision:
            raise Conflict(entry)
        self.num_writes += 1
        self.values[entry] = (value, revision + 1)
        if self.lose_answer:
            self.lose_answer = False
            raise BusTimeout(entry, 2)
        return revision + 1

    async def read_all(self, pattern: str) -> dict[str, bytes]:
        if self.away:
            raise BusError(pattern, "away")
        beginning = pattern.removesuffix(">")
        return {entry: value for entry, (value, _) in self.values.items() if entry.startswith(beginning)}

    def state(self, party: str) -> AccountState:
        return AccountState.decode(self.values[f"use.{party}"][0])
