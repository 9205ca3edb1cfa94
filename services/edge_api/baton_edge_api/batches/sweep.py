"""What is done with goes: files past their time, old batches, leftovers of a process that died half-way."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from baton_common.errors import RequestFailed
from baton_edge_api.batches.store import OfflineStore

log = logging.getLogger(__name__)

HOUR = 3600.0
BATCH_SECONDS = 30 * 24 * HOUR
"""A batch that is over is kept so long."""


async def sweep_now_and_then(store: OfflineStore) -> None:
    """For ever, about each hour. Every edge does it: what is gone already is no error."""
    while True:
        await asyncio.sleep(random.uniform(0.5, 1.5) * HOUR)  # noqa: S311  # spreads edges, no secret
        try:
            await sweep(store, time.time())
        except RequestFailed as failed:
            log.warning("files not swept: %s", failed)


async def sweep(store: OfflineStore, now: float) -> None:
    """Raises RequestFailed while the store is away."""
    for record in await store.all_files():
        if record.expired(now):
            await store.remove_file(record.tenant_id, record.id)
    await store.drop_old_announcements(now)
    known = await store.file_ids()
    for file_id, written_at in await store.contents():
        if file_id not in known and now - written_at > HOUR:  # younger: its entry may be on its way
            await store.remove_contents(file_id)
    with_lines = await store.batches_with_lines()  # first: a batch is there before its lines are
    batches, known = await store.all_batches(), await store.batch_ids()
    over = {record.id for record in batches if not record.is_active}
    for batch_id in with_lines:
        if batch_id in over or batch_id not in known:
            await store.drop_lines(batch_id)
    for record in batches:
        if record.id in over and now - record.created_at > BATCH_SECONDS:
            await store.remove_batch(record)
