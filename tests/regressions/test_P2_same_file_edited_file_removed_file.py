"""P2: the same file twice, then one paragraph edited, then the file removed. The second adds 0, the third
replaces only what changed, the fourth leaves nothing."""

from __future__ import annotations

from pathlib import Path

from baton_common.memory_bus import MemoryBus
from tests.support.prompt_stage import FakeEmbedder, open_prompt_stage, settings_for, sources

PAGE = "# Animals\n\n" + "".join(f"## Animal {n}\n\nZebra number{n} grazes.\n\n" for n in range(8))


async def _memory() -> MemoryBus:
    return MemoryBus()


async def test_counts_and_what_is_found_after_each_step(tmp_path: Path) -> None:
    async with open_prompt_stage(settings_for(tmp_path), _memory) as stage:
        embedder = FakeEmbedder(stage.bus)
        await embedder.start()

        first = await stage.ingest("animals.md", PAGE)
        assert (first.chunks, first.added, first.removed) == (8, 8, 0)
        embedder.texts.clear()

        second = await stage.ingest("animals.md", PAGE)
        assert (second.chunks, second.added, second.removed) == (8, 0, 0)
        assert embedder.texts == []

        third = await stage.ingest("animals.md", PAGE.replace("number3 grazes", "number3 sleeps"))
        assert (third.chunks, third.added, third.removed) == (8, 1, 1)
        assert embedder.texts == ["Animals > Animal 3\nZebra number3 sleeps."]
        handoff = await stage.ask("Zebra number3", retrieval="on")
        assert "number3 sleeps." in handoff.prompt.messages[-1].text
        assert "number3 grazes." not in handoff.prompt.messages[-1].text

        fourth = await stage.ingest("animals.md", "")
        assert (fourth.chunks, fourth.added, fourth.removed) == (0, 0, 8)
        assert not sources(await stage.ask("Zebra number3", retrieval="on"))
        await embedder.stop()
