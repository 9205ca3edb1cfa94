"""P4: ingestion killed half-way. The client's wait ends; the same file sent again ends in the right state."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from baton_common.bus import BusMessage
from baton_common.errors import BusTimeout
from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.heartbeats import Lease
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import IngestQuery, IngestReply

NUM_PARTS = 1500
PAGE = "# Animals\n\n" + "".join(f"## Part {n}\n\nZebra number {n} grazes.\n\n" for n in range(NUM_PARTS))


@asynccontextmanager
async def _prompt_builder(nats_url: str, home: Path, bus: NatsBus) -> AsyncGenerator[Process, None]:
    """A process of its own that is ready to answer."""
    ready = asyncio.Event()

    def note(message: BusMessage) -> None:
        lease = Lease.decode(message.payload)
        if (lease.service, lease.state) == ("prompt_builder", "ready"):
            ready.set()

    settings = {
        "BATON_NATS_URL": nats_url,
        "BATON_HOME": str(home),
        "BATON_SEED_DOCUMENTS": "false",
        "BATON_INGEST_EMBED_SECONDS": "0",
    }
    leases = await bus.subscribe(subjects.LEASE_ALL, note)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "baton_prompt_builder", env={**os.environ, **settings}
    )
    try:
        async with asyncio.timeout(30):
            await ready.wait()
        await leases.unsubscribe()
        yield process
    finally:
        await _kill(process)


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def _ingest(bus: NatsBus, text: str) -> IngestReply:
    """Raises BusTimeout if the service dies over the question."""
    query = IngestQuery(tenant_id="acme", source="animals.md", media_type="text/markdown", text=text)
    payload = await bus.request(subjects.ingest(new_request_id()), query.encode(), timeout=5)
    return IngestReply.decode(payload)


def _written(folder: Path) -> dict[Path, int]:
    """When each file of the store was last written."""
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


async def test_the_same_file_again_completes_what_a_kill_interrupted(nats_url: str, tmp_path: Path) -> None:
    bus = await NatsBus.connect(nats_url, name="test")
    async with _prompt_builder(nats_url, tmp_path, bus) as process:
        empty = await _ingest(bus, "")
        assert empty.error is None
        before = _written(tmp_path / "store")
        interrupted = asyncio.create_task(_ingest(bus, PAGE))
        async with asyncio.timeout(20):
            while _written(tmp_path / "store") == before:
                await asyncio.sleep(0.001)  # nothing tells of a write but the file itself
        await _kill(process)
        interrupted.cancel()
        with pytest.raises((asyncio.CancelledError, BusTimeout)):
            await interrupted
    async with _prompt_builder(nats_url, tmp_path, bus):
        again = await _ingest(bus, PAGE)
        assert (again.error, again.chunks, again.removed) == (None, NUM_PARTS, 0)
        assert again.added <= NUM_PARTS  # about 1,244: the first page had been stored before the kill
        complete = await _ingest(bus, PAGE)
        assert (complete.chunks, complete.added, complete.removed) == (NUM_PARTS, 0, 0)
        gone = await _ingest(bus, "")
        assert gone.removed == NUM_PARTS
    await bus.close()
