"""What a step computes, by hand: budgets, order, blocks, preemption, guesses."""

from __future__ import annotations

import pytest

from baton_engine.kv_cache import KVCache
from baton_engine.request import Request, RequestState
from baton_engine.sampling_params import SamplingParams
from baton_engine.scheduler import Scheduler, StepPlan
from baton_engine.step_pace import StepPace


def request(request_id: str, num_tokens: int, priority: int = 0) -> Request:
    token_ids = tuple(hash_free(request_id, index) for index in range(num_tokens))
    return Request(request_id, token_ids, SamplingParams(), max_tokens=100, seed=0, priority=priority)


def hash_free(request_id: str, index: int) -> int:
    """Token ids that differ from request to request, so that no prefix is shared by accident."""
    return 1000 * ord(request_id[-1]) + index


def scheduler(num_blocks: int = 32, seqs: int = 8, budget: int = 16) -> Scheduler:
    return Scheduler(KVCache(num_blocks, block_size=4), seqs, budget)


def shape(plan: StepPlan) -> list[tuple[str, int, int]]:
    return [(chunk.request.request_id, chunk.start, chunk.num_tokens) for chunk in plan.chunks]


def run(one: Scheduler, steps: int = 1) -> StepPlan:
    """Schedules, computes, and gives each request that samples its next token."""
    plan = StepPlan(0, 0)
    for _ in range(steps):
        plan = one.schedule()
        sampling = [chunk.request for chunk in plan.chunks if chunk.samples]
        one.complete(plan)
        for each in sampling:
            each.token_ids.append(7)
    return plan


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    core = scheduler(budget=16)
    core.add(request("a", 40))
    assert shape(run(core)) == [("a", 0, 16)]
    assert shape(run(core)) == [("a", 16, 16)]
    assert shape(run(core)) == [("a", 32, 8)]
    assert shape(run(core)) == [("a", 40, 1)]


def test_decodes_come_before_a_prompt_that_came_first() -> None:
    core = scheduler(num_blocks=64)
    core.add(request("long", 60))
    core.add(request("b", 4))
    core.max_num_batched_tokens = 64
    run(core)  # 60 of long and 4 of b: both will decode
    core.add(request("c", 100))
    core.max_num_batched_tokens = 10
    assert shape(run(core)) == [("long", 60, 1), ("b", 4, 1), ("c", 0, 8)]
    assert shape(run(core)) == [("long", 61, 1), ("b", 5, 1), ("c", 8, 8)]


def test_beside_decodes_all_prompts_together_get_what_the_pace_grants() -> None:
    core = scheduler(num_blocks=64, budget=64)
    core.add(request("a", 4))
    run(core)
    core.pace = StepPace(0.016)
    core.pace.learn(0.064, num_decodes=0, num_prompt_tokens=64)  # 1 ms a token: 16 fit
    core.add(request("b", 10))
    core.add(request("c", 30))
    assert shape(run(core)) == [("a", 4, 1), ("b", 0, 10), ("c", 0, 6)]
    assert shape(run(core)) == [("a", 5, 1), ("b", 10, 1), ("c", 6, 16)]
    for done in core.running[:2]:
        core.finish(done)
    assert shape(run(core)) == [("c", 22, 8)]


def test_seats_are_bounded() -> None:
    core = scheduler(seqs=2)
    for name in "abc":
        core.add(request(name, 2))
    assert shape(run(core)) == [("a", 0, 2), ("b", 0, 2)]
    core.finish(core.running[0])
    assert shape(run(core)) == [("b", 2, 1), ("c", 0, 2)]


def test_a_lower_priority_number_is_served_first_and_equals_in_order_of_arrival() -> None:
    core = scheduler(budget=2, seqs=2)
    for name, priority in (("a", 5), ("b", 1), ("c", 5), ("d", 1)):
        core.add(request(name, 2, priority))
    assert [one.request_id for one in core.waiting] == ["b", "d", "a", "c"]


def test_the_head_of_the_queue_is_not_overtaken_when_it_does_not_fit() -> None:
    core = scheduler(num_blocks=8, budget=64)
    core.add(request("a", 24))
    run(core)
    core.add(request("b", 20))
    core.add(request("c", 2))
    assert shape(run(core)) == [("a", 24, 1)]
    assert [one.request_id for one in core.waiting] == ["b", "c"]


def test_without_a_block_the_last_in_order_is_preempted_and_keeps_its_place() -> None:
    core = scheduler(num_blocks=5, budget=64)
    first, second = request("a", 8), request("b", 7)
    core.add(first)
    core.add(second)
    run(core)  # a fills two blocks, b two: one block is left
    core.add(request("c", 4))
    plan = run(core)
    assert shape(plan) == [("a", 8, 1), ("b", 7, 1)]
    plan = run(core)  # b's next token needs a block, and none is left: b goes, being the last in order
    assert shape(plan) == [("a", 9, 1)]
    assert plan.preempted == [second]
    assert (second.state, second.num_computed_tokens, second.block_ids) == (RequestState.WAITING, 0, [])
    assert [one.request_id for one in core.waiting] == ["b", "c"]
    assert second.num_tokens == 9  # what it has said stays


def test_a_request_planned_in_the_same_step_can_be_preempted_and_nobody_is_skipped() -> None:
    core = scheduler(num_blocks=6, budget=64)
    names = [request(name, 7) for name in "abc"]
    for one in names:
        core.add(one)
    for _ in range(2):
        run(core)
    assert {one.request_id for one in core.running} == {"a", "b"}  # the reserve kept c out
    core.finish(names[0])
    # b (9 tokens, 2 blocks held, needs a third) and c (7 tokens, two blocks) fit together in 6 blocks.
    run(core)
    assert {one.request_id for one in core.running} == {"b", "c"}
    steps = 0
    while names[2].num_preemptions == 0:
        plan = run(core)
        planned = {chunk.request.request_id for chunk in plan.chunks}
        assert planned == {"b", "c"} - {one.request_id for one in plan.preempted}
        steps += 1
    assert names[1].num_preemptions == 0
    assert steps < 20
    core.kv_cache.pool.check()


def test_a_preempted_victim_gives_its_share_of_the_budget_back() -> None:
    core = scheduler(num_blocks=4, budget=64)
    old = request("a", 7)
    young = request("b", 3)
    core.add(old)
    core.add(young)
    run(core)
    # Both decode; make the younger one come first in the plan by letting the older still prefill.
    old.num_computed_tokens = 5
    old.token_ids += [7, 7, 7]
    old.block_ids = old.block_ids[:]
    blocks = core.kv_cache.pool.take(1)
    assert blocks is not None
    plan = core.schedule()
    assert shape(plan) == [("a", 5, 6)]
    assert plan.preempted == [young]
    assert plan.num_tokens == 6


@pytest.mark.parametrize(
    ("free_blocks", "num_guesses"),
    [(2, 3), (3, 3), (4, 8), (9, 8)],
)
def test_guesses_over_several_blocks_leave_each_other_request_the_block_of_its_own_token(
    free_blocks: int, num_guesses: int
) -> None:
    """Both are at the end of a block. The first one's eight guesses go over two more: with less than four
    blocks it gets those that fit into the block of its own token, and nobody is preempted."""
    core = scheduler(num_blocks=4 + free_blocks, budget=64)
    guessing, other = request("a", 7), request("b", 7)
    core.add(guessing)
    core.add(other)
    run(core, 2)  # nine tokens each, eight of them computed: two blocks each
    guessing.draft_token_ids = tuple(range(8))
    plan = core.schedule()
    assert plan.preempted == []
    assert shape(plan) == [("a", 8, 1 + num_guesses), ("b", 8, 1)]


def test_finishing_works_in_every_state_and_once() -> None:
    core = scheduler(budget=4)
    running, waiting = request("a", 6), request("b", 6)
    core.add(running)
    core.add(waiting)
    run(core)
    assert core.finish(running) == 2
    assert core.finish(running) == 0
    assert core.finish(waiting) == 0
    assert not core.has_work
    assert core.kv_cache.pool.counts().held == 0
