"""What the next step computes. Owns the waiting and running queues; knows no tensors, no text and no clock.

    running requests first, those that decode before those that still prefill
    then waiting ones, in the queue's order (`queue_order.py`), as long as tokens, seats and KV blocks last
    beside decodes, prompts get as many tokens as `step_pace.py` grants: streams don't pause for them
    no block left for a running request → the last in order is preempted: its blocks go back, it waits
    again at its old place, and recomputes prompt and answer later; what it gave so far stays as it is

A plan is a promise: when `schedule` returns, each planned request has the blocks for its chunk.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from itertools import count

from baton_engine.kv_cache import KVCache
from baton_engine.queue_order import QueueOrder, SortKey, by_priority
from baton_engine.request import Request, RequestState
from baton_engine.step_pace import StepPace


@dataclass(frozen=True)
class Chunk:
    """Compute tokens [start, start + num_tokens) of `request`; sample a token if that reaches the last.

    The last of them may be guesses, draft_token_ids, which the request does not have yet.
    """

    request: Request
    start: int
    num_tokens: int
    draft_token_ids: tuple[int, ...] = ()

    @property
    def own_end(self) -> int:
        """Where the request's own tokens in the chunk end, and guesses begin."""
        return self.start + self.num_tokens - len(self.draft_token_ids)

    @property
    def token_ids(self) -> list[int]:
        return [*self.request.token_ids[self.start : self.own_end], *self.draft_token_ids]

    @property
    def samples(self) -> bool:
        return self.own_end == self.request.num_tokens

    @property
    def is_decode(self) -> bool:
        """With or without guesses."""
        return self.own_end - self.start == 1

    @property
    def scored(self) -> range:
        """Prompt tokens whose logprobs this chunk gives: each follows from the logits one place before."""
        first = max(self.start + 1, self.request.num_scored_tokens)
        return range(first, min(self.start + self.num_tokens + 1, self.request.num_prompt_tokens))


@dataclass
class StepPlan:
    """One step's work. `admitted` and `preempted` are for the record; the runner needs only `chunks`.

    budget bounds all tokens; prompt_budget those of chunks longer than a decode's one token.
    """

    budget: int
    prompt_budget: int
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    admitted: list[Request] = field(default_factory=list[Request])
    preempted: list[Request] = field(default_factory=list[Request])
    num_tokens: int = 0
    num_prompt_tokens: int = 0

    @property
    def num_decodes(self) -> int:
        return sum(1 for chunk in self.chunks if chunk.is_decode)

    @property
    def sampling(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.samples]

    @property
    def num_sampled_rows(self) -> int:
        return sum(1 + len(chunk.draft_token_ids) for chunk in self.sampling)

    @property
    def budget_left(self) -> int:
        return self.budget - self.num_tokens

    def room_for(self, request: Request) -> int:
        """How many of the request's tokens the budgets still have room for."""
        left = self.budget_left
        if request.num_remaining_tokens > 1:
            left = min(left, self.prompt_budget - self.num_prompt_tokens)
        return min(request.num_remaining_tokens, max(0, left))

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self._count(chunk, 1)

    def drop(self, request: Request) -> None:
        for chunk in [chunk for chunk in self.chunks if chunk.request is request]:
            self.chunks.remove(chunk)
            self._count(chunk, -1)

    def _count(self, chunk: Chunk, sign: int) -> None:
        self.num_tokens += sign * chunk.num_tokens
        if not chunk.is_decode:
            self.num_prompt_tokens += sign * chunk.num_tokens


class Scheduler:
    def __init__(
        self,
        kv_cache: KVCache,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        order: QueueOrder | None = None,
        pace: StepPace | None = None,
    ) -> None:
        self.kv_cache = kv_cache
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.order = order or by_priority()
        self.pace = pace or StepPace(math.inf)
        self.waiting: list[Request] = []  # sorted by order
        self.running: list[Request] = []
        self.num_preemptions = 0
        self._arrivals = count()

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        if request.forked_from is None:
            request.arrival = next(self._arrivals)
        insort(self.waiting, request, key=self.order)

    def schedule(self) -> StepPlan:
        num_decodes = sum(1 for request in self.running if request.num_remaining_tokens == 1)
        budget = self.max_num_batched_tokens
        plan = StepPlan(budget, self.pace.prompt_tokens(budget, num_decodes))
        self._plan_running(plan)
        if not plan.preempted:
            self._plan_waiting(plan)
        return plan

    def complete(self, plan: StepPlan) -> None:
        """Books the plan's tokens, without guesses, as computed and makes their full blocks findable."""
        for chunk in plan.chunks:
            chunk.request.num_computed_tokens = chunk.own_end
            self.kv_cache.publish(chunk.request, chunk.start)

    def accept(self, request: Request) -> None:
        """A guess was right and is a token now: it is computed already."""
        request.num_computed_tokens += 1
        self.kv_cache.publish(request, request.num_computed_tokens - 1)

    def drop_wrong_drafts(self, plan: StepPlan) -> None:
        """What the step computed behind the last right token is worth nothing: its blocks go back."""
        for chunk in plan.chunks:
            if chunk.draft_token_ids and chunk.request.is_running:
                self.kv_cache.trim(chunk.request)

    def finish(self, request: Request) -> int:
        """Takes the request out, in whatever state it is; the number of blocks it gave back."""
        if request.state is RequestState.FINISHED:
            return 0
        queue = self.running if request.state is RequestState.RUNNING else self.waiting
        queue.remove(request)
        request.state = RequestState.FINISHED
        computed = request.num_computed_tokens
        freed = self.kv_cache.free(request)
        request.num_computed_tokens = computed
        return freed

    def _plan_running(self, plan: StepPlan) -> None:
        for request in sorted(self.running, key=self._decodes_first):
            preempted_meanwhile = request.state is not RequestState.RUNNING
            num_tokens = plan.room_for(request)
            if preempted_meanwhile or num_tokens == 0:
                continue
            if self._make_room(request, num_tokens, plan):
                draft = self._fitting_draft(request, num_tokens, plan)
                start = request.num_computed_tokens
                plan.add(Chunk(request, start, num_tokens + len(draft), draft))

    def _plan_waiting(self, plan: StepPlan) -> None:
        while self.waiting and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            if plan.room_for(request) == 0:
                return
            # Each running request may need a block soon: without the reserve, admission causes preemption.
            if not self.kv_cache.admit(request, reserve=len(self.running)):
                return
            self.waiting.pop(0)
            self.running.append(request)
            request.state = RequestState.RUNNING
            plan.admitted.append(request)
            plan.add(Chunk(request, request.num_computed_tokens, plan.room_for(request)))

    def _make_room(self, request: Request, num_tokens: int, plan: StepPlan) -> bool:
        while not self.kv_cache.grow(request, request.num_computed_tokens + num_tokens):
            victim = max(self.running, key=self.order)
            self._preempt(victim, plan)
            if victim is request:
                return False
        return True

    def _fitting_draft(self, request: Request, num_tokens: int, plan: StepPlan) -> tuple[int, ...]:
        """As much of the request's draft as leaves each other running request a token and a block."""
        others = len(self.running) - len(plan.chunks) - 1
        count = min(len(request.draft_token_ids), plan.budget_left - num_tokens - others)
        if count <= 0 or num_tokens < request.num_remaining_tokens:
            return ()
        if not self.kv_cache.grow(request, request.num_tokens + count, reserve=others):
            count = min(count, len(request.block_ids) * self.kv_cache.block_size - request.num_tokens)
        return request.draft_token_ids[:count]

    def _preempt(self, victim: Request, plan: StepPlan) -> None:
        plan.drop(victim)
        plan.preempted.append(victim)
        self.running.remove(victim)
        self.kv_cache.free(victim)
        victim.state = RequestState.WAITING
        victim.draft_token_ids = ()
        victim.num_preemptions += 1
        self.num_preemptions += 1
        insort(self.waiting, victim, key=self.order)

    def _decodes_first(self, request: Request) -> tuple[bool, SortKey]:
        return (request.num_remaining_tokens > 1, self.order(request))
