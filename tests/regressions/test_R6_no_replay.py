"""R6: after the first token, with nobody to go on, there is an error event; nothing is replayed, nothing ends
in success."""

from __future__ import annotations

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Stage
from tests.support.scripted_answer import Script
from tests.support.waiting import eventually


@pytest.mark.parametrize("num_engines", [1, 2])
async def test_after_the_first_token_there_is_no_second_start(memory_stage: Stage, num_engines: int) -> None:
    stage = memory_stage
    engines = [FakeEngine(Script(error_after=2)) for _ in range(num_engines)]
    await stage.whole(*engines)

    heard = await stage.ask()

    assert heard.text == "The answer "
    assert heard.token_ids == [1, 2]
    assert heard.end is None
    assert heard.error is not None
    assert (heard.error.code, heard.error.status) == ("upstream_error", 502)
    assert "after 2 tokens" in heard.error.message
    assert [len(engine.submitted) for engine in engines] == [2] * num_engines  # a warm-up, and one attempt
    await eventually(lambda: len(stage.records) == num_engines)
    rows = [(row.outcome, row.usage.prompt_tokens, row.usage.completion_tokens) for row in stage.records]
    assert rows == [("error", 7, 2)] if num_engines == 1 else [("migrated", 0, 2), ("error", 7, 0)]
