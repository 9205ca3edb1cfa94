"""Files, batches and the lead as the edge's own user of NATS may use them, and no more."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator

import pytest
from nats.js.errors import NotFoundError

from baton_common.errors import BusError, RequestFailed
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.envelope import Tenant
from baton_edge_api.batches.file_store import COMING_SECONDS
from baton_edge_api.batches.lead import LOST_SECONDS, Lead
from baton_edge_api.batches.records import BatchRecord, FileRecord, new_batch_id, new_file_id
from baton_edge_api.batches.store import OfflineStore
from baton_edge_api.batches.sweep import sweep
from tests.support.relay import HandClock
from tests.support.restricted_nats import RestrictedNats

TENANT = Tenant(tenant_id="acme.*", key_id="k")


@pytest.fixture
async def bus(relay_nats: RestrictedNats) -> AsyncIterator[NatsBus]:
    opened = await relay_nats.connect("edge_api")
    yield opened
    await opened.close()


@pytest.fixture
def store(bus: NatsBus) -> OfflineStore:
    return OfflineStore(bus, 8 * 1024 * 1024)


def file_record(num_bytes: int = 3) -> FileRecord:
    return FileRecord(
        id=new_file_id(),
        tenant_id=TENANT.tenant_id,
        filename="f",
        purpose="batch",
        num_bytes=num_bytes,
        created_at=1,
    )


def batch_record() -> BatchRecord:
    return BatchRecord(
        id=new_batch_id(),
        tenant=TENANT,
        endpoint="/v1/chat/completions",
        input_file_id=new_file_id(),
        output_seconds=3600,
        created_at=1,
        expires_at=2,
    )


async def test_a_file_of_several_chunks_comes_back(store: OfflineStore) -> None:
    record, content = file_record(), bytes(range(256)) * 2000
    await store.add_file(record, io.BytesIO(content))
    with await store.open_file(record.id) as opened:
        assert opened.read() == content
    assert await store.file(TENANT.tenant_id, record.id) == record
    assert record in await store.files(TENANT.tenant_id)
    assert await store.files("acme") == []
    assert record.id in {name for name, _ in await store.contents()}
    await store.remove_file(TENANT.tenant_id, record.id)
    assert await store.file(TENANT.tenant_id, record.id) is None
    with pytest.raises(RequestFailed, match="not_found"):
        await store.open_file(record.id)


async def test_a_full_store_says_so_and_keeps_nothing_of_the_file(store: OfflineStore) -> None:
    record = file_record()
    with pytest.raises(RequestFailed, match="request_too_large: The store of files is full"):
        await store.add_file(record, io.BytesIO(b"x" * 9 * 1024 * 1024))
    assert await store.file(TENANT.tenant_id, record.id) is None
    await store.add_file(record, io.BytesIO(b"x" * 1024 * 1024))
    await store.remove_file(TENANT.tenant_id, record.id)


async def test_changes_of_two_are_both_kept(store: OfflineStore) -> None:
    record = batch_record()
    await store.add_batch(record)

    def one_more(present: BatchRecord) -> BatchRecord:
        return present.model_copy(update={"completed": present.completed + 1})

    await asyncio.gather(*(store.change_batch(record, one_more) for _ in range(8)))
    found = await store.batch(TENANT.tenant_id, record.id)
    assert found
    assert found.completed == 8
    await store.remove_batch(record)
    assert await store.change_batch(record, one_more) is None


async def test_the_first_result_of_a_line_counts(store: OfflineStore) -> None:
    batch_id = new_batch_id()
    assert await store.add_line(batch_id, 1, b"first")
    assert not await store.add_line(batch_id, 1, b"second")
    assert await store.add_line(batch_id, 12, b"other")
    assert [item async for item in store.lines(batch_id)] == [(1, b"first"), (12, b"other")]
    assert batch_id in await store.batches_with_lines()
    await store.drop_lines(batch_id)
    assert [item async for item in store.lines(batch_id)] == []


async def test_one_of_two_leads_and_the_other_follows_when_it_falls_silent(
    bus: NatsBus, store: OfflineStore
) -> None:
    hand = HandClock()
    first, second = Node(bus, "edge_api", hand.clock), Node(bus, "edge_api", hand.clock)
    leading, waiting = Lead(first, store), Lead(second, store)
    assert await leading.try_take()
    assert not await waiting.try_take()
    hand.move(LOST_SECONDS - 1)
    assert not await waiting.try_take()
    hand.move(1)
    assert await waiting.try_take()  # the word has not changed for so long
    assert not await leading.try_take()
    await waiting.give_up()
    assert await leading.try_take()
    await leading.give_up()


async def test_a_leader_that_was_replaced_finds_out(bus: NatsBus, store: OfflineStore) -> None:
    node = Node(bus, "edge_api")
    leading = Lead(node, store, renew_seconds=0.01)
    assert await leading.try_take()
    keeping = asyncio.create_task(leading.keep())
    name, revision = await store.leader()
    assert name == node.instance
    taken = None
    while taken is None:
        _, revision = await store.leader()
        taken = await store.take_lead("edge_api-usurper", revision)
    await asyncio.wait_for(keeping, 20)
    await leading.give_up()
    assert (await store.leader())[0] == "edge_api-usurper"
    await store.give_up_lead((await store.leader())[1])


async def test_a_leader_whose_lease_ends_is_followed_at_once(bus: NatsBus, store: OfflineStore) -> None:
    first, second = Node(bus, "edge_api"), Node(bus, "edge_api")
    leading, waiting = Lead(first, store), Lead(second, store)
    await second.leases.start()
    assert await leading.try_take()
    assert not await waiting.try_take()
    started = time.monotonic()
    await first.stop()  # its last lease says that it is gone
    while not await waiting.try_take():
        assert time.monotonic() - started < LOST_SECONDS / 2
    await waiting.give_up()
    await second.leases.stop()


async def test_without_the_bus_it_is_503(relay_nats: RestrictedNats) -> None:
    gone = await relay_nats.connect("edge_api")
    store = OfflineStore(gone, 1024)
    await gone.close()
    with pytest.raises(RequestFailed) as failed:
        await store.files("acme")
    assert (failed.value.error.code, failed.value.error.status) == ("bus_unavailable", 503)


async def test_no_other_service_may_read_files(relay_nats: RestrictedNats, store: OfflineStore) -> None:
    await store.files("acme")
    other = await relay_nats.connect("llm_gateway")
    try:
        with pytest.raises((RequestFailed, BusError, NotFoundError, TimeoutError)):
            await asyncio.wait_for(
                other.request(f"$JS.API.STREAM.INFO.OBJ_{subjects.STORE_FILES}", b"", timeout=0.3), 1
            )
    finally:
        await other.close()


async def test_a_file_that_comes_takes_space_from_those_that_come_after_it(store: OfflineStore) -> None:
    """Whoever counts, at whatever edge: the first two fit together, the third and fourth don't."""
    stored, first, second, third = (file_record(num_bytes) for num_bytes in (10, 20, 30, 40))
    await store.add_file(stored, io.BytesIO(b"x"))
    places = [await store.announce(record) for record in (first, second, third)]
    tenant, now = TENANT.tenant_id, 2.0
    assert [await store.used_bytes(tenant, place, now) for place in places] == [10, 30, 60]
    await store.add_file(second, io.BytesIO(b"x"))
    assert await store.used_bytes(tenant, places[2], now) == 60, "counted once while it is in both"
    await store.withdraw(second)
    await store.withdraw(first)
    assert await store.used_bytes(tenant, places[2], now) == 40
    assert await store.used_bytes("another", places[2], now) == 0
    last = await store.announce(file_record(50))
    assert await store.used_bytes(tenant, last, now) == 80
    assert await store.used_bytes(tenant, last, now + COMING_SECONDS) == 40, "its edge was lost"
    await store.drop_old_announcements(now + COMING_SECONDS)
    assert await store.used_bytes(tenant, last + 1, now) == 40


async def test_what_can_not_be_read_is_not_there_and_keeps_what_belongs_to_it(
    store: OfflineStore, bus: NatsBus
) -> None:
    record = batch_record()
    await store.add_batch(record)
    bucket = await bus.jetstream.key_value(subjects.BUCKET_BATCHES)
    newer = new_batch_id()
    await bucket.put(f"batch.acme=2E=2A.{newer}", b'{"of": "another version"}')
    await store.add_line(newer, 1, b"a result")
    assert await store.batch(TENANT.tenant_id, newer) is None
    assert [one.id for one in await store.batches(TENANT.tenant_id)] == [record.id]
    await sweep(store, time.time())
    assert newer in await store.batches_with_lines()
