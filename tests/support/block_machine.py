"""Requests that come, run, share, are preempted, cancelled and evicted in any order, for property tests."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton_engine.kv_cache import KVCache
from baton_engine.request import Request, RequestState
from baton_engine.sampling_params import SamplingParams
from baton_engine.scheduler import Chunk, Scheduler, StepPlan
from baton_engine.speculation.verification import rows_by_depth

NUM_BLOCKS, BLOCK_SIZE, BUDGET, SEATS = 12, 4, 10, 4
SETTINGS = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
LONGEST = NUM_BLOCKS * BLOCK_SIZE  # tokens that a request may reach in all


class Blocks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(KVCache(NUM_BLOCKS, BLOCK_SIZE), SEATS, BUDGET)
        self.live: list[Request] = []
        self.count = 0

    @rule(
        prefix=st.integers(0, 6),
        own=st.integers(1, 20),
        answer=st.integers(1, 12),
        salt=st.sampled_from(["", "x"]),
        priority=st.integers(0, 2),
    )
    def add(self, prefix: int, own: int, answer: int, salt: str, priority: int) -> None:
        """Prompts share beginnings of several lengths; some requests could just about fill the pool alone."""
        self.count += 1
        token_ids = (*range(prefix * 3), *(1000 * self.count + index for index in range(own)))
        one = Request(
            f"r{self.count}",
            token_ids,
            SamplingParams(),
            max_tokens=min(answer, LONGEST - len(token_ids)),
            seed=0,
            cache_salt=salt,
            priority=priority,
        )
        self.scheduler.add(one)
        self.live.append(one)

    @rule(drafts=st.lists(st.integers(0, 6), min_size=SEATS, max_size=SEATS), right=st.integers(0, 6))
    def step(self, drafts: list[int], right: int) -> None:
        """Requests that decode come with drafts of some lengths, of which the first `right` tokens hold."""
        for one, length in zip(self.scheduler.running, drafts, strict=False):
            end = min(one.num_tokens + length, one.max_num_tokens - 1)
            places = range(one.num_tokens, end)
            one.draft_token_ids = tuple(at if at < one.num_tokens + right else -1 for at in places)
        self._step()

    def _step(self) -> None:
        plan = self.scheduler.schedule()
        assert plan.num_tokens <= BUDGET
        assert len({chunk.request.request_id for chunk in plan.chunks}) == len(plan.chunks)
        for chunk in plan.chunks:
            one = chunk.request
            assert one.state is RequestState.RUNNING
            assert chunk.start == one.num_computed_tokens < chunk.own_end <= one.num_tokens
            assert chunk.samples or not chunk.draft_token_ids
            assert len(one.block_ids) * BLOCK_SIZE >= chunk.start + chunk.num_tokens
        self._no_block_is_written_by_two(plan.chunks)
        self._nobody_is_preempted_for_drafts(plan)
        self.scheduler.complete(plan)
        logits = torch.zeros(plan.num_sampled_rows, 1)
        for _, requests in rows_by_depth(logits, plan, self.scheduler.accept):
            for one in requests:
                one.token_ids.append(one.num_tokens)
                if one.num_answer_tokens >= one.max_tokens:
                    self._finish(one)
        self.scheduler.drop_wrong_drafts(plan)
        for one in self.scheduler.running:
            one.draft_token_ids = ()
            if one.num_answer_tokens:
                assert len(one.block_ids) <= -(-one.num_tokens // BLOCK_SIZE)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.live))
        held = len(one.block_ids)
        assert self.scheduler.finish(one) == held
        self.live.remove(one)
        assert self.scheduler.finish(one) == 0

    @precondition(lambda self: self.live)
    @rule(data=st.data(), index=st.integers(1, 9))
    def fork(self, data: st.DataObject, index: int) -> None:
        """Another answer to a prompt that is computed, or that was so and has lost its blocks since."""
        parent = data.draw(st.sampled_from(self.live))
        if parent.num_answer_tokens == 0 or parent.forked_from is not None:
            return
        self.count += 1
        child = parent.fork(index)
        child.request_id = f"r{self.count}"
        self.scheduler.add(child)
        self.live.append(child)

    @rule()
    def evict_all(self) -> None:
        self.scheduler.kv_cache.pool.forget_cached()

    @invariant()
    def blocks_are_conserved(self) -> None:
        pool = self.scheduler.kv_cache.pool
        pool.check()
        in_tables = {block for one in self.live for block in one.block_ids}
        assert pool.counts().held == len(in_tables)

    @invariant()
    def queues_hold_the_live_ones_once(self) -> None:
        queued = [*self.scheduler.running, *self.scheduler.waiting]
        assert sorted(one.request_id for one in queued) == sorted(one.request_id for one in self.live)
        assert len(self.scheduler.running) <= SEATS

    def teardown(self) -> None:
        """Nobody starves: with no new arrivals, all live requests finish in a bounded number of steps."""
        bound = 200 + 100 * len(self.live)
        while self.scheduler.has_work and bound:
            self._step()
            bound -= 1
        assert not self.live
        assert self.scheduler.kv_cache.pool.counts().held == 0

    def _finish(self, one: Request) -> None:
        self.scheduler.finish(one)
        self.live.remove(one)

    def _nobody_is_preempted_for_drafts(self, plan: StepPlan) -> None:
        """If one had to go, what the others took for guesses fits into blocks that they need anyway."""
        if plan.preempted:
            for chunk in plan.chunks:
                assert len(chunk.request.block_ids) <= -(-chunk.request.num_tokens // BLOCK_SIZE)

    def _no_block_is_written_by_two(self, chunks: list[Chunk]) -> None:
        """A shared block is read only: whoever writes one has it alone."""
        for chunk in chunks:
            first = chunk.start // BLOCK_SIZE
            last = (chunk.start + chunk.num_tokens - 1) // BLOCK_SIZE
            written = set(chunk.request.block_ids[first : last + 1])
            for other in self.live:
                assert other is chunk.request or not written & set(other.block_ids)
