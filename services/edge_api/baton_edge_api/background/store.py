"""The bucket `baton_background`: an entry for each response that is to be made or is being made; and which
bucket has their events.

Owns the translation of the bus's errors. An entry is there until its answer is kept: who finds none asks the
books.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from baton_common.errors import BusError, RequestFailed
from baton_contracts.errors import ErrorBody
from baton_edge_api.background.records import BackgroundRecord, entry_of
from baton_edge_api.bucket import Conflict, NatsBucket
from baton_edge_api.responses.ids import key_of

Change = Callable[[BackgroundRecord], BackgroundRecord | None]
"""The record as it should be; None: leave it."""


class BackgroundStore:
    """All raise RequestFailed while the bus is away."""

    def __init__(self, bucket: NatsBucket, events: NatsBucket) -> None:
        """`events`: of those that are streamed."""
        self._bucket = bucket
        self.events = events

    async def add(self, record: BackgroundRecord) -> None:
        with _reaching():
            await self._bucket.replace(record.entry, record.encode(), 0)

    async def find(self, tenant_id: str, response_id: str) -> BackgroundRecord | None:
        """None: it is not being made (any more)."""
        key = key_of(response_id)
        return (await self._read(entry_of(tenant_id, key)))[0] if key else None

    async def change(self, entry: str, change: Change) -> BackgroundRecord | None:
        """As it was written; None if it is gone or was left as it is. `change` may be called repeatedly."""
        while True:
            present, revision = await self._read(entry)
            wanted = change(present) if present else None
            if wanted is None:
                return None
            try:
                with _reaching():
                    await self._bucket.replace(entry, wanted.encode(), revision)
            except Conflict:
                continue
            return wanted

    async def forget_events(self, tenant_id: str, response_id: str) -> None:
        """Of one whose end is kept."""
        if key := key_of(response_id):
            with _reaching():
                await self.events.purge(f"{entry_of(tenant_id, key)}.>")

    async def remove(self, entry: str) -> None:
        with _reaching():
            await self._bucket.remove(entry)

    async def _read(self, entry: str) -> tuple[BackgroundRecord | None, int]:
        with _reaching():
            value, revision = await self._bucket.read(entry)
        return (BackgroundRecord.read(entry, value) if value else None), revision


def away(error: BusError) -> RequestFailed:
    text = f"Responses in the background can't be reached now ({error}). Try again shortly."
    return RequestFailed(
        ErrorBody(code="bus_unavailable", message=text, stop="edge_api", retry_after_seconds=1)
    )


@contextmanager
def _reaching() -> Generator[None, None, None]:
    try:
        yield
    except BusError as error:
        raise away(error) from error
