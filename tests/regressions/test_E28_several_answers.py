"""E28: n = 4 with a seed: four different answers, the same every time, whatever is shared or preempted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from baton_engine import LLM, InvalidParameter, RequestDelta, SamplingParams
from baton_engine.assembly import LoadedEngine
from baton_engine.request import Request, choice_seed
from tests.support.engine_driver import add, ask, drain, edit_logits, text, token_ids
from tests.support.tiny_model import tiny_engine, tiny_parts

FOUR = SamplingParams(max_tokens=20, temperature=1.0, seed=7, ignore_eos=True, n=4)
PROMPT = list(range(100, 142))


def by_index(deltas: list[RequestDelta]) -> dict[int, list[RequestDelta]]:
    return {
        index: [one for one in deltas if one.index == index] for index in sorted({d.index for d in deltas})
    }


def answers(engine: LoadedEngine, sampling: SamplingParams = FOUR, **more: Any) -> dict[int, list[int]]:
    add(engine, ask("a", PROMPT, sampling, **more))
    return {index: token_ids(deltas) for index, deltas in by_index(drain(engine)["a"]).items()}


def test_four_different_answers_and_the_same_again() -> None:
    first = answers(tiny_engine())
    assert list(first) == [0, 1, 2, 3]
    assert [len(ids) for ids in first.values()] == [20] * 4
    assert len({tuple(ids) for ids in first.values()}) == 4
    assert answers(tiny_engine()) == first


def test_each_is_what_its_derived_seed_gives_alone() -> None:
    together = answers(tiny_engine())
    assert choice_seed(7, 1) == 2670282796783250599  # fixed: it holds from release to release
    for index in range(4):
        seed = 7 if index == 0 else choice_seed(7, index)
        assert answers(tiny_engine(), replace(FOUR, n=1, seed=seed))[0] == together[index]


@pytest.mark.parametrize(
    "changes",
    [
        {"num_blocks": 24, "block_size": 4},
        {"max_num_seqs": 2},
        {"max_num_batched_tokens": 8},
        {"enable_prefix_caching": False},
    ],
    ids=["preempted", "two seats", "chunked", "no prefix cache"],
)
def test_however_it_is_run(changes: dict[str, Any]) -> None:
    engine = tiny_engine(**changes)
    assert answers(engine) == answers(tiny_engine())
    if "num_blocks" in changes:
        assert engine.core.stats().preemptions_total > 0


@pytest.mark.parametrize("caching", [True, False])
def test_the_prompts_full_blocks_are_shared(caching: bool) -> None:
    engine = tiny_engine(enable_prefix_caching=caching)
    add(engine, ask("a", PROMPT, FOUR))
    engine.core.step()
    assert engine.core.stats().waiting == 3
    engine.core.step()
    one, *others = engine.core.scheduler.running
    assert [other.block_ids[:2] for other in others] == [one.block_ids[:2]] * 3
    assert engine.core.stats().kv_blocks_held == 2 + 4  # two blocks of the prompt, and a tail for each
    assert engine.core.stats().step_profile.num_tokens == 42 + 1 + 3 * 10  # a tail of 10 is computed again
    assert engine.core.stats().prefix_hit_tokens_total == 0
    drain(engine)
    assert engine.core.stats().kv_blocks_held == 0
    assert engine.core.stats().prompt_tokens_total == 42


def test_the_request_ends_with_its_last_answer() -> None:
    """Answer 1 is stopped early, the others at their length."""
    engine = tiny_engine()

    def stop_one(requests: list[Request], logits: Any) -> None:
        for row, request in enumerate(requests):
            early = request.index == 1 and request.num_answer_tokens == 2
            logits[row, ord("!") if early else ord("a") + request.index] = 1e4

    edit_logits(engine, stop_one)  # type: ignore[arg-type]
    add(engine, ask("a", PROMPT, replace(FOUR, max_tokens=5, stop=("!",), temperature=0)))
    deltas = drain(engine)["a"]
    texts = {index: text(part) for index, part in by_index(deltas).items()}
    assert texts == {0: "aaaaa", 1: "bb", 2: "ccccc", 3: "ddddd"}
    ended = [(one.index, one.finish_reason, one.num_left) for one in deltas if one.finish_reason]
    assert ended == [(1, "stop", 3), (0, "length", 2), (2, "length", 1), (3, "length", 0)]
    assert [one.ends_request for one in deltas].count(True) == 1
    assert deltas[-1].ends_request
    assert engine.core.waiting_room.num_requests == 0
    add(engine, ask("a", PROMPT))  # the id is free again
    drain(engine)


@pytest.mark.parametrize(("steps", "indexes"), [(0, [0]), (1, [0, 1, 2, 3]), (5, [0, 1, 2, 3])])
def test_cancelling_ends_all_of_them(steps: int, indexes: list[int]) -> None:
    engine = tiny_engine()
    add(engine, ask("a", PROMPT, FOUR))
    for _ in range(steps):
        engine.core.step()
    report, deltas = engine.core.cancel("a")
    assert report.found
    assert [delta.index for delta in deltas] == indexes
    assert {delta.finish_reason for delta in deltas} == {"cancelled"}
    assert [delta.ends_request for delta in deltas][-1]
    assert engine.core.stats().kv_blocks_held == 0
    assert not engine.core.has_work
    assert engine.core.cancel("a")[0].found is False


def test_through_the_python_face_with_prompt_logprobs_once() -> None:
    llm = LLM("tiny", parts=tiny_parts(), dtype="float32", device="cpu", num_blocks=64, num_threads=1)
    outputs = llm.generate([PROMPT, [1, 2, 3]], replace(FOUR, prompt_logprobs=1, logprobs=0))
    assert [output.index for output in outputs] == [0, 1, 2, 3] * 2
    assert [output.prompt_logprobs is None for output in outputs] == [False, True, True, True] * 2
    assert [len(output.logprobs) for output in outputs] == [20] * 8
    assert {output.token_ids for output in outputs[:4]} == {
        tuple(ids) for ids in answers(tiny_engine()).values()
    }


def test_one_token_each() -> None:
    assert [len(ids) for ids in answers(tiny_engine(), replace(FOUR, max_tokens=1)).values()] == [1] * 4


@pytest.mark.parametrize("bad", [0, -1, 65, 1.0])
def test_out_of_range(bad: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"n is .*; it must be from 1 to 64"):
        SamplingParams(n=bad)


@pytest.mark.parametrize("cut", [1, 11, 20])
def test_all_of_them_go_on_in_another_engine(cut: int) -> None:
    whole = answers(tiny_engine())
    sent = [whole[index][:cut] for index in range(4)]
    rest = answers(tiny_engine(), resume_token_ids=sent[0], resume_others=sent[1:])
    assert {index: [*sent[index], *rest.get(index, [])] for index in range(4)} == whole
