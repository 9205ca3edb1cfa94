"""How large a prompt chunk may be beside decodes: known costs in, known sizes out. No clock runs."""

from __future__ import annotations

import math

import pytest

from baton_engine import ConfigError, EngineConfig
from baton_engine.step_pace import StepPace
from baton_engine.step_profile import StepProfiler
from tests.support.engine_driver import GREEDY, add, ask
from tests.support.tiny_model import tiny_engine


def pace_of(decode_ms: float, token_ms: float, max_step_ms: float = 70.0) -> StepPace:
    """It has seen four decode steps, then a prompt alone."""
    pace = StepPace(max_step_ms / 1000)
    for _ in range(4):
        pace.learn(decode_ms / 1000, num_decodes=4, num_prompt_tokens=0)
    pace.learn(512 * token_ms / 1000, num_decodes=0, num_prompt_tokens=512)
    return pace


def test_a_prompt_alone_gets_the_whole_budget() -> None:
    assert pace_of(6.0, 0.25).prompt_tokens(512, num_decodes=0) == 512


def test_beside_decodes_a_step_is_kept_under_its_limit() -> None:
    # 70 ms less 6 ms of decodes at 0.25 ms a token: 256; at 0.3 ms: 213, in whole units of 16.
    assert pace_of(6.0, 0.25).prompt_tokens(512, num_decodes=4) == 256
    assert pace_of(6.0, 0.3).prompt_tokens(512, num_decodes=4) == 208


def test_the_budget_stays_the_upper_bound() -> None:
    assert pace_of(6.0, 0.01).prompt_tokens(512, num_decodes=4) == 512
    assert pace_of(6.0, 0.0).prompt_tokens(512, num_decodes=4) == 512
    assert pace_of(60.0, 9.0).prompt_tokens(8, num_decodes=4) == 8


def test_slow_decodes_leave_prompts_half_of_the_time() -> None:
    # The limit would leave 10 ms of 70, or nothing; prompts get the 60 or 200 ms that decodes take too.
    assert pace_of(60.0, 0.5).prompt_tokens(512, num_decodes=32) == 112
    assert pace_of(200.0, 1.0).prompt_tokens(512, num_decodes=32) == 192


def test_a_prompt_always_moves() -> None:
    assert pace_of(1.0, 50.0).prompt_tokens(512, num_decodes=1) == 16


def test_before_anything_is_known_there_is_no_limit() -> None:
    assert StepPace(0.07).prompt_tokens(512, num_decodes=4) == 512


def test_what_a_token_costs_is_learnt_beside_decodes_too() -> None:
    pace = pace_of(6.0, 0.25)
    for _ in range(12):  # the context grew: 128 tokens and 4 decodes now take 70 ms
        pace.learn(0.070, num_decodes=4, num_prompt_tokens=128)
    assert pace.prompt_tokens(512, num_decodes=4) == 128


def test_one_slow_step_is_soon_forgotten() -> None:
    pace = pace_of(6.0, 0.25)
    pace.learn(0.5, num_decodes=4, num_prompt_tokens=256)
    assert pace.prompt_tokens(512, num_decodes=4) < 128
    for _ in range(8):
        size = pace.prompt_tokens(512, num_decodes=4)
        pace.learn(0.006 + size * 0.00025, num_decodes=4, num_prompt_tokens=size)
    assert pace.prompt_tokens(512, num_decodes=4) >= 224


def test_a_short_chunk_says_little_about_the_cost_of_a_token() -> None:
    pace = pace_of(6.0, 0.25)
    pace.learn(0.010, num_decodes=4, num_prompt_tokens=2)  # 2 ms a token, by chance
    assert pace.prompt_tokens(512, num_decodes=4) >= 240


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_step_that_may_take_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="max_step_seconds is"):
        EngineConfig(model="none", max_step_seconds=seconds)  # pyright: ignore[reportArgumentType]


def test_in_the_loop_a_long_prompt_is_cut_only_while_somebody_decodes() -> None:
    """A clock by which a prompt token takes 1 ms and decodes nothing: 32 tokens fit into a step of 32 ms."""
    engine = tiny_engine(max_step_seconds=0.033)
    core, now = engine.core, 0.0
    core.profiler = StepProfiler(lambda: now)
    run = core.runner.run

    def run_by_the_clock(plan: object) -> object:
        nonlocal now
        now += 0.001 * plan.num_prompt_tokens  # type: ignore[attr-defined]
        return run(plan)  # type: ignore[arg-type]

    core.runner.run = run_by_the_clock  # type: ignore[method-assign, assignment]
    add(engine, ask("stream", list(range(60)), GREEDY))
    core.step()
    assert len(core.scheduler.running[0].prefill_chunks) == 1
    for _ in range(3):
        core.step()
    add(engine, ask("long", list(range(100, 220)), GREEDY))
    for _ in range(4):
        core.step()
    sizes = {
        request.request_id: [chunk.num_tokens for chunk in request.prefill_chunks]
        for request in core.scheduler.running
    }
    assert sizes == {"stream": [60], "long": [32, 32, 32, 24]}
