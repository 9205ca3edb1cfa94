"""The files of a batch's results, made from its finished lines.

Owns which result goes into which file. Their ids are in the batch's record before they are written, so that
whoever takes over half-way writes the same files.
"""

from __future__ import annotations

from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

from baton_edge_api.batches.lines import succeeded
from baton_edge_api.batches.records import BatchRecord, FileRecord
from baton_edge_api.batches.store import OfflineStore

_IN_MEMORY_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Results:
    completed: int
    failed: int
    output_file_id: str | None
    """None: it would be empty, and is not there."""
    error_file_id: str | None

    def changes(self) -> dict[str, Any]:
        return dict(vars(self))


async def write_results(store: OfflineStore, record: BatchRecord, now: float) -> Results | None:
    """None if the batch is over: another process has written them, and dropped the lines since then. Raises
    RequestFailed while the store is away."""
    with (
        cast("IO[bytes]", SpooledTemporaryFile(_IN_MEMORY_BYTES)) as good,
        cast("IO[bytes]", SpooledTemporaryFile(_IN_MEMORY_BYTES)) as bad,
    ):
        counts = {True: 0, False: 0}
        async for _, result in store.lines(record.id):
            fine = succeeded(result)
            counts[fine] += 1
            (good if fine else bad).write(result + b"\n")
        present = await store.batch(record.tenant.tenant_id, record.id)
        if present is None or not present.is_active:
            return None
        output = await _write(store, record, record.output_file_id, "output", good, now)
        errors = await _write(store, record, record.error_file_id, "error", bad, now)
    return Results(counts[True], counts[False], output, errors)


async def _write(
    store: OfflineStore,
    record: BatchRecord,
    file_id: str | None,
    name: str,
    content: IO[bytes],
    now: float,
) -> str | None:
    size = content.tell()
    if not size or not file_id:
        return None
    content.seek(0)
    file = FileRecord(
        id=file_id,
        tenant_id=record.tenant.tenant_id,
        filename=f"{record.id}_{name}.jsonl",
        purpose="batch_output",
        num_bytes=size,
        created_at=int(now),
        expires_at=int(now) + record.output_seconds,
    )
    await store.add_file(file, content)
    return file_id
