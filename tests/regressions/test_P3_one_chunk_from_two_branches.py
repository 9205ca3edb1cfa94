"""P3: the same chunk from dense and sparse; ten documents, k = 5; one branch down. Unique ids, five chunks in
all, fused order, not empty."""

from __future__ import annotations

from pathlib import Path

from baton_common.memory_bus import MemoryBus
from baton_contracts.handoffs import GuardInHandoff
from tests.support.prompt_stage import FakeEmbedder, open_prompt_stage, settings_for, sources

QUESTION = "zebra savanna grass water"


async def _memory() -> MemoryBus:
    return MemoryBus()


def _check(handoff: GuardInHandoff) -> None:
    prompt = handoff.prompt
    ids = [chunk.chunk_id for chunk in prompt.chunks]
    assert len(ids) == 5
    assert len(set(ids)) == 5
    assert [chunk.citation for chunk in prompt.chunks] == [1, 2, 3, 4, 5]
    parts = [part for message in prompt.messages for part in message.parts if part.origin == "document"]
    assert [part.chunk_id for part in parts] == ids
    assert sources(handoff)[0] == "best.md"


async def test_five_unique_chunks_with_both_branches_and_with_one(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, retrieval_chunks=5)
    async with open_prompt_stage(settings, _memory) as stage:
        embedder = FakeEmbedder(stage.bus)
        await embedder.start()
        for number in range(9):
            await stage.ingest(
                f"{number}.md", f"# Animal {number}\n\nzebra savanna words{number} more{number}"
            )
        await stage.ingest("best.md", "# Best\n\nzebra savanna grass water")
        _check(await stage.ask(QUESTION, retrieval="on"))
        await embedder.stop()
        _check(await stage.ask(QUESTION, retrieval="on"))
