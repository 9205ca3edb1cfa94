"""The step loop with a tiny random model: the same tokens however they are computed, and every way to end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from baton_engine import SamplingParams
from baton_engine.assembly import LoadedEngine
from tests.support.engine_driver import GREEDY, add, ask, drain, text, token_ids
from tests.support.tiny_model import EOS, TinyCheckpoint, tiny_engine

SEEDED = SamplingParams(max_tokens=24, temperature=1.0, top_p=0.95, seed=11, ignore_eos=True)
PROMPTS = [list(range(1 + index, 20 + 7 * index)) for index in range(5)]


def answers_of(engine: LoadedEngine, sampling: SamplingParams) -> list[list[int]]:
    for index, prompt in enumerate(PROMPTS):
        add(engine, ask(f"r{index}", prompt, sampling))
    answers = drain(engine)
    return [token_ids(answers[f"r{index}"]) for index in range(len(PROMPTS))]


def answers_alone(sampling: SamplingParams) -> list[list[int]]:
    found: list[list[int]] = []
    for prompt in PROMPTS:
        engine = tiny_engine(max_num_batched_tokens=256)
        add(engine, ask("alone", prompt, sampling))
        found.append(token_ids(drain(engine)["alone"]))
    return found


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize(
    "changes",
    [
        {"max_num_batched_tokens": 256},
        {"max_num_batched_tokens": 8},
        {"max_num_seqs": 2},
        {"block_size": 4, "num_blocks": 24},
        {"block_size": 4, "num_blocks": 40},
        {"enable_prefix_caching": False},
    ],
    ids=["batched", "chunked", "two seats", "preempted", "small blocks", "no prefix cache"],
)
def test_tokens_do_not_depend_on_how_they_are_computed(
    changes: dict[str, Any], sampling: SamplingParams
) -> None:
    engine = tiny_engine(**changes)
    assert answers_of(engine, sampling) == answers_alone(sampling)
    if changes == {"block_size": 4, "num_blocks": 24}:
        assert engine.core.stats().preemptions_total > 0


def test_a_prefix_hit_gives_the_same_answer_and_computes_less() -> None:
    engine = tiny_engine()
    prompt = list(range(50))
    add(engine, ask("cold", prompt))
    cold = drain(engine)["cold"]
    add(engine, ask("warm", prompt))
    warm = drain(engine)["warm"]
    assert token_ids(warm) == token_ids(cold)
    assert cold[-1].usage is not None
    assert warm[-1].usage is not None
    assert (cold[-1].usage.cached_tokens, warm[-1].usage.cached_tokens) == (0, 48)
    assert warm[-1].timings is not None
    assert [chunk.num_tokens for chunk in warm[-1].timings.prefill_chunks] == [2]
    assert engine.core.stats().prefix_hit_tokens_total == 48


def test_a_request_joins_and_leaves_between_steps() -> None:
    engine = tiny_engine()
    add(engine, ask("a", [1, 2, 3], replace(GREEDY, max_tokens=4)))
    first = engine.core.step()
    add(engine, ask("b", [4, 5, 6], replace(GREEDY, max_tokens=4)))
    second = engine.core.step()
    assert [delta.request_id for delta in first] == ["a"]
    assert [delta.request_id for delta in second] == ["a", "b"]
    third, fourth, fifth = engine.core.step(), engine.core.step(), engine.core.step()
    assert [(d.request_id, d.finish_reason) for d in third] == [("a", None), ("b", None)]
    assert [(d.request_id, d.finish_reason) for d in fourth] == [("a", "length"), ("b", None)]
    assert [(d.request_id, d.finish_reason) for d in fifth] == [("b", "length")]
    assert not engine.core.has_work


def test_the_last_delta_tells_usage_blocks_and_times() -> None:
    engine = tiny_engine(max_num_batched_tokens=16)
    add(engine, ask("a", list(range(30)), replace(GREEDY, max_tokens=5)))
    last = drain(engine)["a"][-1]
    assert last.finish_reason == "length"
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (30, 5)
    assert last.blocks_freed == 3  # 34 tokens were computed: the last one is never fed back
    times = last.timings
    assert times is not None
    assert times.scheduled_at is not None
    assert times.first_token_at is not None
    assert times.queued_at <= times.scheduled_at <= times.first_token_at <= times.finished_at
    assert [chunk.num_tokens for chunk in times.prefill_chunks] == [16, 14]


def test_the_end_token_ends_the_answer_and_shows_no_text() -> None:
    engine = tiny_engine()
    add(engine, ask("free", [1, 2, 3]))
    whole = token_ids(drain(engine)["free"])
    stop_id = whole[6]
    cut = whole.index(stop_id)
    for how in ("eos", "stop id"):
        checkpoint = TinyCheckpoint(
            generation_defaults={"eos_token_id": [EOS, stop_id]} if how == "eos" else {}
        )
        engine = tiny_engine(checkpoint)
        stops = () if how == "eos" else (stop_id,)
        add(engine, ask("a", [1, 2, 3], replace(GREEDY, ignore_eos=False, stop_token_ids=stops)))
        deltas = drain(engine)["a"]
        assert token_ids(deltas) == whole[: cut + 1]
        assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == ("stop", stop_id if stops else None)
        assert text(deltas) == bytes(t for t in whole[:cut] if t < 256).decode(errors="replace")


def test_a_stop_string_ends_the_answer_without_being_sent() -> None:
    engine = tiny_engine()
    add(engine, ask("free", [70]))
    whole = text(drain(engine)["free"])
    stop = whole[4:6]
    add(engine, ask("a", [70], replace(GREEDY, stop=(stop,))))
    deltas = drain(engine)["a"]
    assert text(deltas) == whole[: whole.index(stop)]
    assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == ("stop", stop)


def test_resumed_tokens_are_continued_and_not_sent_again() -> None:
    engine = tiny_engine()
    add(engine, ask("whole", PROMPTS[1], SEEDED))
    whole = drain(engine)["whole"]
    for given in (1, 7, 23):
        resumed = tiny_engine()
        add(resumed, ask("rest", PROMPTS[1], SEEDED, resume_token_ids=token_ids(whole)[:given]))
        rest = drain(resumed)["rest"]
        assert token_ids(rest) == token_ids(whole)[given:]
        assert text(whole[:given]) + text(rest) == text(whole)
        assert rest[-1].usage is not None
        assert rest[-1].usage.completion_tokens == 24 - given


def test_an_answer_that_was_complete_when_resumed_just_finishes() -> None:
    engine = tiny_engine()
    add(engine, ask("a", [1, 2], GREEDY, resume_token_ids=[5] * 24))
    deltas = drain(engine)["a"]
    assert [(delta.finish_reason, delta.token_ids) for delta in deltas] == [("length", ())]
    add(engine, ask("b", [1, 2], replace(GREEDY, ignore_eos=False), resume_token_ids=[5, EOS]))
    assert [delta.finish_reason for delta in drain(engine)["b"]] == ["stop"]


def test_a_fault_of_the_loop_fails_all_that_is_held() -> None:
    engine = tiny_engine(max_num_seqs=1)
    add(engine, ask("running", [1, 2, 3]))
    add(engine, ask("waiting", [1, 2, 3]))
    engine.core.step()
    deltas = engine.core.fail_all("engine_failed", "the device is gone")
    assert {delta.request_id for delta in deltas} == {"running", "waiting"}
    assert {(delta.finish_reason, delta.error.code) for delta in deltas if delta.error} == {
        ("error", "engine_failed")
    }
    assert engine.core.stats().kv_blocks_held == 0
    assert not engine.core.has_work
