"""The library: seed documents come and go with the package, vectors follow in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from baton_common.memory_bus import MemoryBus
from baton_contracts.queries import IngestQuery
from baton_prompt_builder.embedding import EmbedderClient, Vectors
from baton_prompt_builder.library import Library
from baton_prompt_builder.seed import seed_documents
from baton_prompt_builder.settings import Settings
from baton_prompt_builder.stores.interface import StoreError
from baton_prompt_builder.wiring import store_opener
from tests.support.prompt_stage import FakeEmbedder, word_vector
from tests.support.waiting import eventually

SHARED = "baton:shared"


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
async def embedder(bus: MemoryBus) -> AsyncGenerator[FakeEmbedder, None]:
    embedder = FakeEmbedder(bus)
    await embedder.start()
    yield embedder
    await embedder.stop()


def _library(bus: MemoryBus, home: Path, seeds: Sequence[IngestQuery]) -> Library:
    return Library(store_opener(Settings(home=home)), EmbedderClient(bus, 384), 2_000_000, seeds)


def _seed(name: str, text: str) -> IngestQuery:
    return IngestQuery(tenant_id=SHARED, source=f"knowledge/{name}", media_type="text/markdown", text=text)


async def _found(library: Library, words: str, model: str = "") -> list[str]:
    vectors = Vectors(model, (word_vector(words),)) if model else None
    found = await library.search(words, vectors, [SHARED], 9)
    return sorted(hit.chunk.text for hit in (found.dense if model else found.sparse))


async def test_the_seed_set_follows_the_package(bus: MemoryBus, tmp_path: Path) -> None:
    first = _library(bus, tmp_path, [_seed("a.md", "zebra one"), _seed("b.md", "zebra two")])
    assert await first.open()
    own = IngestQuery(tenant_id=SHARED, source="notes.md", text="zebra notes")
    await first.ingest(own, 0)
    await first.close()
    second = _library(bus, tmp_path, [_seed("a.md", "zebra one"), _seed("c.md", "zebra three")])
    assert await second.open()
    assert await _found(second, "zebra") == ["zebra notes", "zebra one", "zebra three"]
    await second.close()


async def test_vectors_come_in_the_background_and_again_after_a_new_model(
    bus: MemoryBus, embedder: FakeEmbedder, tmp_path: Path
) -> None:
    library = _library(bus, tmp_path, [_seed("a.md", "zebra one")])
    assert await library.open()
    running = asyncio.create_task(library.run())
    await library.ingest(IngestQuery(tenant_id="acme", source="x", text="zebra mine"), 20)
    assert await _found(library, "zebra", "words") == ["zebra one"]
    assert sorted(embedder.texts) == ["knowledge/a.md\nzebra one", "probe", "x\nzebra mine"]

    embedder.model, embedder.texts = "better", []
    assert await _found(library, "zebra", "better") == []
    await eventually(lambda: len(embedder.texts) == 2, seconds=20)
    async with asyncio.timeout(20):
        while not (found := await _found(library, "zebra", "better")):
            pass
    assert found == ["zebra one"]
    running.cancel()
    await library.close()


async def test_a_library_that_is_not_open_says_why(bus: MemoryBus, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("in the way")
    library = _library(bus, tmp_path, [])
    assert not await library.open()
    with pytest.raises(StoreError, match="can't be opened"):
        await library.search("x", None, [SHARED], 1)
    with pytest.raises(StoreError, match="can't be opened"):
        await library.ingest(_seed("a.md", "x"), 0)


def test_the_seed_documents_are_those_of_the_package() -> None:
    seeds = seed_documents(SHARED)
    assert len(seeds) >= 12
    assert {seed.tenant_id for seed in seeds} == {SHARED}
    names = [seed.source for seed in seeds]
    assert "knowledge/error-503.md" in names
    assert names == sorted(names)
    assert all(seed.text.startswith("# ") for seed in seeds)
