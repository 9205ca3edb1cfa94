"""G2: two users at once with different names, placeholders cut over chunks; then the analyser is down."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from baton_common.memory_bus import MemoryBus
from baton_common.vault import Vault
from baton_input_guardrails.personal_data import Analysis, Span
from baton_output_guardrails.deny import DenyRules
from baton_output_guardrails.stream_filter import StreamFilter
from tests.support.guard_in_bench import KEY, guard_in_bench, user


class Names:
    def __init__(self) -> None:
        self.down = False

    def analyse(self, texts: Sequence[str], abandoned: Callable[[], bool] = lambda: False) -> Analysis:
        if self.down:
            raise OSError("the model is gone")
        spans = tuple(
            tuple(Span(*hit.span(), "PERSON", 1.0) for hit in re.finditer("Ann|Bob", text)) for text in texts
        )
        return Analysis(spans, (1.0, 1.0), (1.0, 1.0))


async def test_each_gets_their_own_and_nothing_passes_without_the_analyser() -> None:
    names = Names()
    async with guard_in_bench(MemoryBus(), names) as bench:
        ann, bob = await asyncio.gather(bench.passed(user("I am Ann")), bench.passed(user("I am Bob")))
        for handoff, name in ((ann, "Ann"), (bob, "Bob")):
            assert handoff.prompt.messages[0].text == "I am <PERSON_1>"
            assert handoff.vault is not None
            values = Vault(KEY).open(handoff.envelope.request_id, handoff.vault)
            for cut in range(10):
                stream = StreamFilter(values, DenyRules())
                text = "".join(map(stream.push, ("Hi ", "<PERSON_1>"[:cut], "<PERSON_1>"[cut:], "!")))
                assert text + stream.flush() == f"Hi {name}!"
        names.down = True
        error = await bench.refused(user("I am Bob too"))
        assert (error.status, error.stop) == (503, "input_guardrails")
        assert len(bench.taken) == 2
