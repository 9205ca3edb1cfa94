"""E20: preempted in mid-answer, several times: the output is as if never preempted, nobody is skipped."""

from __future__ import annotations

from dataclasses import replace

from tests.support.engine_driver import GREEDY, add, ask, drain, text, token_ids
from tests.support.tiny_model import tiny_engine

SAMPLING = replace(GREEDY, max_tokens=60)
PROMPTS = {f"r{index}": [(31 * index + step) % 250 for step in range(9 + 5 * index)] for index in range(4)}


def test_many_preemptions_change_nothing() -> None:
    tight = tiny_engine(num_blocks=26, block_size=4)
    requests = [add(tight, ask(name, prompt, SAMPLING)) for name, prompt in PROMPTS.items()]
    answers = drain(tight)
    assert max(request.num_preemptions for request in requests) >= 2
    for name, prompt in PROMPTS.items():
        roomy = tiny_engine()
        add(roomy, ask(name, prompt, SAMPLING))
        expected = drain(roomy)[name]
        assert token_ids(answers[name]) == token_ids(expected)
        assert text(answers[name]) == text(expected)
        assert len(answers[name]) == 60


def test_each_step_moves_every_request_that_still_runs() -> None:
    engine = tiny_engine(num_blocks=26, block_size=4)
    requests = [add(engine, ask(name, prompt, SAMPLING)) for name, prompt in PROMPTS.items()]
    while engine.core.has_work:
        decoding = {one.request_id for one in engine.core.scheduler.running if one.num_remaining_tokens == 1}
        moved = {delta.request_id for delta in engine.core.step()}
        waiting = {one.request_id for one in engine.core.scheduler.waiting}
        assert decoding - moved <= waiting
    assert all(request.num_completion_tokens == 60 for request in requests)


def test_the_timings_say_when_it_lost_its_blocks_and_when_it_ran_again() -> None:
    engine = tiny_engine(num_blocks=26, block_size=4)
    requests = [add(engine, ask(name, prompt, SAMPLING)) for name, prompt in PROMPTS.items()]
    answers = drain(engine)
    for request in requests:
        timings = answers[request.request_id][-1].timings
        assert timings is not None
        assert len(timings.preemptions) == timings.num_preemptions == request.num_preemptions
        times = [
            timings.scheduled_at,
            *(at for gap in timings.preemptions for at in (gap.at, gap.resumed_at)),
        ]
        assert None not in times
        assert times == sorted(time for time in times if time is not None)
        assert times[-1] is not None
        assert times[-1] <= timings.finished_at
