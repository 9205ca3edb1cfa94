"""P1: a long chat trimmed between a tool call and its result. Both are kept or both dropped; system kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_common.memory_bus import MemoryBus
from tests.support.prompt_stage import open_prompt_stage, said, settings_for


async def _memory() -> MemoryBus:
    return MemoryBus()


CHAT = (
    said("system", "rules"),
    said("user", "old question"),
    said("assistant", "call lookup(1)" + "x" * 200),
    said("tool", "result of lookup(1)" + "x" * 200),
    said("assistant", "It is 1."),
    said("user", "newer question"),
    said("assistant", "call lookup(2)" + "y" * 60),
    said("tool", "result of lookup(2)"),
    said("user", "last question"),
)


@pytest.mark.parametrize(("context_tokens", "kept"), [(1400, 2), (700, 1), (256, 0)])
async def test_a_call_is_in_the_prompt_exactly_if_its_result_is(
    tmp_path: Path, context_tokens: int, kept: int
) -> None:
    settings = settings_for(
        tmp_path, context_tokens=context_tokens, answer_tokens=200, characters_per_token=1.0
    )
    async with open_prompt_stage(settings, _memory) as stage:
        handoff = await stage.ask(*CHAT, retrieval="off")
    texts = [message.text for message in handoff.prompt.messages]
    calls = [text[5:14] for text in texts if text.startswith("call")]
    results = [text[10:19] for text in texts if text.startswith("result")]
    assert calls == results
    assert calls == ["lookup(1)", "lookup(2)"][2 - kept :]
    assert (texts[0], texts[-1]) == ("rules", "last question")
