"""A batch that is made and begun while leftovers are looked for is none of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from baton_edge_api.batches.sweep import sweep


class _Store:
    """Nothing but a batch with a line, both there after so many reads."""

    def __init__(self, num_reads_before: int) -> None:
        self._left = num_reads_before
        self.dropped: list[str] = []

    def _now(self) -> set[str]:
        self._left -= 1
        return {"batch_new"} if self._left < 0 else set()

    async def batches_with_lines(self) -> set[str]:
        return self._now()

    async def batch_ids(self) -> set[str]:
        return self._now()

    async def all_batches(self) -> list[Any]:
        self._now()
        return []

    async def drop_lines(self, batch_id: str) -> None:
        self.dropped.append(batch_id)

    async def drop_old_announcements(self, now: float) -> None:
        return None

    async def all_files(self) -> list[Any]:
        return []

    async def contents(self) -> list[tuple[str, float]]:
        return []

    async def file_ids(self) -> set[str]:
        return set()


@pytest.mark.parametrize("num_reads_before", range(4))
async def test_lines_of_a_batch_that_begins_meanwhile_stay(num_reads_before: int) -> None:
    store = _Store(num_reads_before)
    await sweep(cast(Any, store), 0.0)
    assert not store.dropped
