"""R1, R2: who left while waiting is out before the next step, and does not delay the one behind."""

from __future__ import annotations

from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Stage
from tests.support.scripted_answer import WORDS, Script
from tests.support.waiting import eventually


async def test_the_one_behind_a_cancelled_one_is_next(memory_stage: Stage) -> None:
    stage = memory_stage
    engine = FakeEngine(Script(max_running=1), autoplay=False)
    await stage.whole(engine)
    first, second, third = [await stage.send(stage.handoff()) for _ in range(3)]
    await eventually(lambda: len(engine.waiting) == 3)
    engine.step()

    await stage.cancel(second)
    gone = await stage.listen(second)
    for _ in range(2 * len(WORDS) - 1):  # exactly what the first and the third need
        engine.step()

    assert gone.end is not None
    assert (gone.end.finish_reason, gone.end.usage.completion_tokens) == ("cancelled", 0)
    for request_id in (first, third):
        heard = await stage.listen(request_id)
        assert heard.text == "".join(WORDS)
    assert engine.stats().kv_blocks_held == 0
