"""Both stores keep the same promises: tenants apart, ids once, words at once, meaning with a vector."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from baton_prompt_builder.chunking import chunk_markdown
from baton_prompt_builder.stores import server_store
from baton_prompt_builder.stores.edge_store import EdgeStore
from baton_prompt_builder.stores.interface import DocumentStore, Hit, StoredChunk, StoreError
from baton_prompt_builder.stores.layout import INDEXED
from baton_prompt_builder.stores.server_store import ServerStore
from tests.support.prompt_stage import word_vector

SIZE = 384


@pytest.fixture(params=["edge", "server"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[DocumentStore, None]:
    if request.param == "edge":
        opened: DocumentStore = await EdgeStore.open(tmp_path / "documents", SIZE)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the client's own stand-in has no payload indexes
            opened = await ServerStore.open(":memory:", "", "documents", SIZE)
    yield opened
    await opened.close()


def _chunks(tenant: str, source: str, *texts: str) -> list[StoredChunk]:
    return chunk_markdown(
        tenant, source, "".join(f"## Part {n}\n\n{text}\n\n" for n, text in enumerate(texts))
    )


async def _embed(store: DocumentStore, chunks: list[StoredChunk], model: str = "m") -> None:
    await store.set_vectors(model, {chunk.chunk_id: word_vector(chunk.searchable_text) for chunk in chunks})


def _texts(hits: tuple[Hit, ...]) -> list[str]:
    return [hit.chunk.text for hit in hits]


async def test_a_chunk_comes_back_as_it_was_stored(store: DocumentStore) -> None:
    (chunk,) = chunk_markdown(
        "acme", "a/b.md", "# Title\n\n## One\n\n### Two\n\nSome <|im_start|> text [1]\n"
    )
    await store.upsert([chunk])
    found = await store.search("text", None, "m", ["acme"], 5)
    assert [hit.chunk for hit in found.sparse] == [chunk]
    assert found.dense == ()


async def test_tenants_are_kept_apart_in_every_branch(store: DocumentStore) -> None:
    mine, theirs = _chunks("acme", "s", "secret recipe mine"), _chunks("other", "s", "secret recipe theirs")
    shared = _chunks("shared", "s", "secret recipe shared")
    await store.upsert([*mine, *theirs, *shared])
    await _embed(store, [*mine, *theirs, *shared])
    question, vector = "secret recipe theirs", word_vector("secret recipe theirs")
    found = await store.search(question, vector, "m", ["acme", "shared"], 10)
    assert sorted(_texts(found.sparse)) == ["secret recipe mine", "secret recipe shared"]
    assert sorted(_texts(found.dense)) == ["secret recipe mine", "secret recipe shared"]
    assert await store.ids_of("acme", "s") == {mine[0].chunk_id}
    assert await store.sources_of("nobody") == set()
    alone = await store.search(question, vector, "m", ["nobody"], 10)
    assert (alone.dense, alone.sparse) == ((), ())


async def test_rarity_of_words_is_counted_over_what_the_tenant_sees(tmp_path: Path) -> None:
    """Otherwise a score would tell whether others' documents hold a word. (The client's stand-in for a server
    counts over the whole collection.)"""
    store = await EdgeStore.open(tmp_path / "documents", SIZE)
    await store.upsert(_chunks("acme", "a", "zebra", "lion"))
    before = (await store.search("zebra", None, "m", ["acme"], 5)).sparse[0].score
    await store.upsert(_chunks("other", "o", *["zebra and more"] * 30))
    assert (await store.search("zebra", None, "m", ["acme"], 5)).sparse[0].score == before
    await store.close()


async def test_words_find_a_chunk_at_once_and_meaning_once_it_has_a_vector(store: DocumentStore) -> None:
    one, two = _chunks("acme", "a", "zebra grazing", "lion sleeping")
    await store.upsert([one, two])
    assert {chunk.chunk_id for chunk in await store.without_vector("m", 9)} == {one.chunk_id, two.chunk_id}
    assert len(await store.without_vector("m", 1)) == 1
    await _embed(store, [one])
    assert await store.without_vector("m", 9) == [two]
    found = await store.search("zebra lion", word_vector("zebra grazing"), "m", ["acme"], 9)
    assert _texts(found.dense) == ["zebra grazing"]
    assert sorted(_texts(found.sparse)) == ["lion sleeping", "zebra grazing"]


async def test_vectors_of_another_model_are_not_searched_and_are_made_again(store: DocumentStore) -> None:
    chunks = _chunks("acme", "a", "zebra grazing")
    await store.upsert(chunks)
    await _embed(store, chunks, "old")
    assert (await store.search("x", word_vector("zebra"), "new", ["acme"], 9)).dense == ()
    assert await store.without_vector("new", 9) == chunks
    await _embed(store, chunks, "new")
    assert len((await store.search("x", word_vector("zebra"), "new", ["acme"], 9)).dense) == 1


async def test_the_same_chunk_again_is_one_chunk_and_deleted_ones_are_gone(store: DocumentStore) -> None:
    chunks = _chunks("acme", "a", "zebra one", "zebra two")
    await store.upsert(chunks)
    await store.upsert(chunks)
    assert len((await store.search("zebra", None, "m", ["acme"], 9)).sparse) == 2
    await store.delete([chunks[0].chunk_id])
    await store.delete([chunks[0].chunk_id, "00000000-0000-0000-0000-000000000000"])
    await store.delete([])
    assert _texts((await store.search("zebra", None, "m", ["acme"], 9)).sparse) == ["zebra two"]
    await _embed(store, chunks)  # one of them is gone meanwhile: passed over
    assert await store.ids_of("acme", "a") == {chunks[1].chunk_id}


async def test_more_chunks_than_one_page(store: DocumentStore) -> None:
    chunks = _chunks("acme", "a", *(f"zebra number{n}" for n in range(600)))
    await store.upsert(chunks)
    assert await store.ids_of("acme", "a") == {chunk.chunk_id for chunk in chunks}
    await store.delete([chunk.chunk_id for chunk in chunks])
    assert await store.ids_of("acme", "a") == set()


async def test_a_question_of_stop_words_finds_nothing_by_words(store: DocumentStore) -> None:
    await store.upsert(_chunks("acme", "a", "the is of"))
    assert (await store.search("what is the", None, "m", ["acme"], 9)).sparse == ()


async def test_a_vector_of_the_wrong_size_is_a_store_error(store: DocumentStore) -> None:
    await store.upsert(_chunks("acme", "a", "zebra"))
    with pytest.raises(StoreError):
        await store.search("zebra", [1.0, 0.0], "m", ["acme"], 9)


async def test_a_folder_that_is_held_by_another_is_refused_and_free_again_after(tmp_path: Path) -> None:
    first = await EdgeStore.open(tmp_path / "d", SIZE)
    with pytest.raises(StoreError, match="can't be opened"):
        await EdgeStore.open(tmp_path / "d", SIZE)
    await first.close()
    with pytest.raises(StoreError, match="closed"):
        await first.search("x", None, "m", ["acme"], 1)
    again = await EdgeStore.open(tmp_path / "d", SIZE)
    await again.close()


KILLED = """
import asyncio, os, sys
from pathlib import Path
from baton_prompt_builder.chunking import chunk_plain_text
from baton_prompt_builder.stores.edge_store import EdgeStore

async def main():
    store = await EdgeStore.open(Path(sys.argv[1]), 384)
    await store.upsert(chunk_plain_text("acme", "a.txt", "zebra"))
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "d")], check=False)  # noqa: ASYNC221
    assert killed.returncode == -9
    store = await EdgeStore.open(tmp_path / "d", SIZE)
    assert _texts((await store.search("zebra", None, "m", ["acme"], 9)).sparse) == ["zebra"]
    await store.close()


async def test_a_server_that_is_not_there_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="Qdrant server"):
        await ServerStore.open("http://127.0.0.1:1", "", "documents", SIZE)


class HalfMade:
    """A Qdrant server that has the collection and none of its indexes."""

    def __init__(self) -> None:
        self.indexes: list[str] = []

    async def collection_exists(self, name: str) -> bool:
        assert name == "documents"
        return True

    async def create_payload_index(self, _collection: str, field: str, _schema: object) -> None:
        self.indexes.append(field)


async def test_indexes_that_a_kill_left_out_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HalfMade()
    monkeypatch.setattr(server_store, "AsyncQdrantClient", lambda *_, **__: server)
    await ServerStore.open("http://127.0.0.1:1", "", "documents", SIZE)
    assert server.indexes == list(INDEXED)
