"""R3, R6: a failure after the first token is an error event; nothing is replayed, nothing ends in success."""

from __future__ import annotations

from tests.support.fake_engine import FakeEngine, Script
from tests.support.relay_stage import Stage, settled


async def test_after_the_first_token_there_is_no_second_start(memory_stage: Stage) -> None:
    stage = memory_stage
    engines = [FakeEngine(Script(error_after=2)) for _ in range(2)]
    await stage.whole(*engines)

    heard = await stage.ask()

    assert heard.text == "The answer "
    assert heard.end is None
    assert heard.error is not None
    assert (heard.error.code, heard.error.status) == ("upstream_error", 502)
    assert "after 2 tokens" in heard.error.message
    assert sorted(len(engine.submitted) for engine in engines) == [1, 2]  # a warm-up each, and one attempt
    await settled(lambda: len(stage.records) == 1)
    assert (stage.records[0].outcome, stage.records[0].usage.completion_tokens) == ("error", 2)
