"""Only the difference is written, and a stop half-way leaves something that a second try completes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.queries import IngestQuery
from baton_prompt_builder.ingestion import Change, Ingestion
from baton_prompt_builder.stores.edge_store import EdgeStore
from baton_prompt_builder.stores.interface import StoredChunk, StoreError


class StumblingStore(EdgeStore):
    """Fails before the next call of `stumble_at`."""

    stumble_at = ""

    async def upsert(self, chunks: Sequence[StoredChunk]) -> None:
        self._stumble("upsert")
        await super().upsert(chunks)

    async def delete(self, chunk_ids: Sequence[str]) -> None:
        self._stumble("delete")
        await super().delete(chunk_ids)

    def _stumble(self, at: str) -> None:
        if self.stumble_at == at:
            self.stumble_at = ""
            raise StoreError("stumbled")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[StumblingStore, None]:
    store = await StumblingStore.open(tmp_path / "d", 384)
    assert isinstance(store, StumblingStore)
    yield store
    await store.close()


def _query(text: str, media_type: str = "text/markdown", tenant: str = "acme") -> IngestQuery:
    return IngestQuery.model_validate(
        {"tenant_id": tenant, "source": "page", "media_type": media_type, "text": text}
    )


PAGE = "# T\n\n## One\n\nfirst part\n\n## Two\n\nsecond part\n\n## Three\n\nthird part\n"
EDITED = PAGE.replace("second part", "another part")


async def _texts(store: EdgeStore) -> set[str]:
    return {hit.chunk.text for hit in (await store.search("part", None, "", ["acme"], 99)).sparse}


async def test_same_again_adds_nothing_and_an_edit_replaces_what_changed(store: StumblingStore) -> None:
    ingestion = Ingestion(store, 10_000)
    assert await ingestion.ingest(_query(PAGE)) == Change(chunks=3, added=3, removed=0)
    assert await ingestion.ingest(_query(PAGE)) == Change(chunks=3, added=0, removed=0)
    assert await ingestion.ingest(_query(EDITED)) == Change(chunks=3, added=1, removed=1)
    assert await _texts(store) == {"first part", "another part", "third part"}
    assert await ingestion.ingest(_query("")) == Change(chunks=0, added=0, removed=3)
    assert await _texts(store) == set()
    assert await ingestion.ingest(_query("")) == Change(chunks=0, added=0, removed=0)


async def test_other_tenants_documents_of_the_same_name_stay(store: StumblingStore) -> None:
    ingestion = Ingestion(store, 10_000)
    await ingestion.ingest(_query(PAGE))
    assert (await ingestion.ingest(_query(PAGE, tenant="other"))).added == 3
    assert (await ingestion.ingest(_query("", tenant="other"))).removed == 3
    assert len(await _texts(store)) == 3


@pytest.mark.parametrize(
    ("stumble_at", "left"),
    [
        ("upsert", {"first part", "second part", "third part"}),
        ("delete", {"first part", "second part", "another part", "third part"}),
    ],
)
async def test_stopped_half_way_nothing_is_lost_and_the_next_try_completes_it(
    store: StumblingStore, stumble_at: str, left: set[str]
) -> None:
    ingestion = Ingestion(store, 10_000)
    await ingestion.ingest(_query(PAGE))
    store.stumble_at = stumble_at
    with pytest.raises(StoreError):
        await ingestion.ingest(_query(EDITED))
    assert await _texts(store) == left
    change = await ingestion.ingest(_query(EDITED))
    assert change.removed == 1
    assert await _texts(store) == {"first part", "another part", "third part"}


async def test_each_media_type_is_read_its_own_way(store: StumblingStore) -> None:
    ingestion = Ingestion(store, 10_000)
    await ingestion.ingest(_query("<h1>Title</h1><p>one part<script>part()</script>", "text/html"))
    found = (await store.search("part", None, "", ["acme"], 9)).sparse
    assert [(hit.chunk.title, hit.chunk.text) for hit in found] == [("Title", "one part")]
    await ingestion.ingest(_query("# one part", "text/plain"))
    found = (await store.search("part", None, "", ["acme"], 9)).sparse
    assert [(hit.chunk.title, hit.chunk.text) for hit in found] == [("page", "# one part")]


async def test_too_large_and_unreadable_documents_are_refused(store: StumblingStore) -> None:
    ingestion = Ingestion(store, 1000)
    with pytest.raises(RequestFailed) as large:
        await ingestion.ingest(_query("x" * 1001))
    assert (large.value.error.code, large.value.error.status) == ("request_too_large", 413)
    with pytest.raises(RequestFailed) as deep:
        await Ingestion(store, 10_000).ingest(_query("<div>" * 1500, "text/html"))
    assert (deep.value.error.code, deep.value.error.status) == ("invalid_value", 400)
