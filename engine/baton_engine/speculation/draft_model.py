"""Guesses from a small model of the same vocabulary. Owns its KV pool and, for each request, its shadow: a
request of its own whose tokens follow those of the real one.

    follow    the shadow takes the real tokens; what it computed for guesses that were wrong is forgotten
    catch up  one forward pass over all that shadows lack, in chunks under the token budget
    draft     then token after token, for those that are wanted and have caught up

A shadow samples as its request does, with the same (seed, position) numbers, so that equal distributions give
equal tokens; penalties, masks and other rules that look at the answer are left to the real sampler. Where the
pool is full or the draft model's context ends there are no guesses; nothing is ever preempted for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from baton_engine.backend import chooser_of
from baton_engine.forward import ForwardPass
from baton_engine.kv_cache import KVCache
from baton_engine.request import Request
from baton_engine.runner import Runner
from baton_engine.sampler import Sampler
from baton_engine.sampling_params import SamplingParams
from baton_engine.scheduler import Chunk, StepPlan
from baton_engine.speculation.drafting import Wanted, share_out


@dataclass(eq=False)
class Shadow:
    """request is the draft model's own; num_followed of its tokens are the real one's for sure."""

    request: Request
    num_followed: int = 0
    num_published: int = 0
    is_foreign: bool = False  # has a token that the draft model does not know

    @classmethod
    def of(cls, real: Request, vocab_size: int) -> Shadow:
        """What the sampler needs to choose as it does for the real request, without rules on the answer."""
        sampling = real.sampling
        allowed = tuple(token_id for token_id in sampling.allowed_token_ids or () if token_id < vocab_size)
        choice = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            allowed_token_ids=allowed or None,
            logit_bias={one: bias for one, bias in sampling.logit_bias.items() if one < vocab_size},
        )
        return cls(
            Request(
                real.request_id,
                real.prompt_token_ids,
                choice,
                max_tokens=real.max_tokens,
                seed=real.seed,
                cache_salt=real.cache_salt,
            )
        )

    def follow(self, real: Request, vocab_size: int) -> None:
        """Its tokens become the real ones; what it computed holds as far as both were equal."""
        ours, theirs, same = self.request.token_ids, real.token_ids, self.num_followed
        while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
            same += 1
        self.is_foreign |= any(token_id >= vocab_size for token_id in theirs[self.num_followed :])
        ours[same:] = theirs[same:]
        self.num_followed = len(theirs)
        self.request.num_computed_tokens = min(self.request.num_computed_tokens, same)


@dataclass
class Draft:
    shadow: Shadow
    num_tokens: int
    token_ids: list[int] = field(default_factory=list[int])


class DraftModel:
    """budget: tokens in one forward pass. vocab_size is the real model's: no guess is outside it."""

    def __init__(self, forward: ForwardPass, kv_cache: KVCache, budget: int, vocab_size: int) -> None:
        self.runner = Runner(forward)
        self.kv_cache = kv_cache
        self.budget = budget
        self.vocab_size = vocab_size
        self._spec = forward.spec
        self._sampler = Sampler(chooser_of(forward))
        self._shadows: dict[Request, Shadow] = {}

    def draft(self, wanted: Sequence[Wanted], most: int, running: Sequence[Request]) -> list[list[int]]:
        self._forget_all_but(running)
        shares = share_out([num_tokens for _, num_tokens in wanted], most)
        drafts = [
            Draft(self._shadow_of(one.request), share) for one, share in zip(wanted, shares, strict=True)
        ]
        # Prompts are computed while the real model computes them: later all would have to wait for it.
        prefilling = [self._shadow_of(one) for one in running if one.num_remaining_tokens > 1]
        plan = self._plan([*(draft.shadow for draft in drafts if draft.num_tokens), *prefilling])
        while plan.chunks:
            chosen = self._compute(plan)
            going_on = [draft.shadow for draft in drafts if self._extend(draft, chosen)]
            plan = self._plan(going_on)
        return [draft.token_ids for draft in drafts]

    def forget(self, request: Request) -> None:
        shadow = self._shadows.pop(request, None)
        if shadow is not None:
            self.kv_cache.free(shadow.request)

    def check_idle(self) -> None:
        self.kv_cache.pool.check()
        held = self.kv_cache.pool.counts().held
        assert held == 0, f"{held} KV blocks of the draft model are held by nobody"

    def _forget_all_but(self, running: Sequence[Request]) -> None:
        """A preempted request waits without blocks here too."""
        kept = set(running)
        for request in [one for one in self._shadows if one not in kept]:
            self.forget(request)

    def _shadow_of(self, request: Request) -> Shadow:
        shadow = self._shadows.get(request)
        if shadow is None:
            shadow = self._shadows[request] = Shadow.of(request, self._spec.vocab_size)
        shadow.follow(request, self._spec.vocab_size)
        ours = shadow.request
        if ours.num_computed_tokens > shadow.num_published:
            self.kv_cache.publish(ours, shadow.num_published)
            shadow.num_published = ours.num_computed_tokens
        return shadow

    def _plan(self, shadows: Sequence[Shadow]) -> StepPlan:
        """Those that lack least come first: one that has to catch up with a long prompt delays nobody."""
        plan = StepPlan(self.budget, self.budget)
        for shadow in sorted(shadows, key=lambda one: one.request.num_remaining_tokens):
            request = shadow.request
            if self._has_room(shadow) and plan.budget_left:
                num_tokens = min(request.num_remaining_tokens, plan.budget_left)
                plan.add(Chunk(request, request.num_computed_tokens, num_tokens))
        return plan

    def _has_room(self, shadow: Shadow) -> bool:
        request = shadow.request
        too_long = request.num_tokens > self._spec.max_positions
        if shadow.is_foreign or too_long or request.num_remaining_tokens == 0:
            return False
        if not request.block_ids:
            return self.kv_cache.admit(request)
        return self.kv_cache.grow(request, request.num_tokens)

    def _compute(self, plan: StepPlan) -> dict[Request, int | None]:
        """What the draft model chooses behind the last token of each shadow that has caught up."""
        logits = self.runner.run(plan)
        caught_up = [chunk.request for chunk in plan.sampling]
        sampled = self._sampler.sample(logits, caught_up)
        for chunk in plan.chunks:
            chunk.request.num_computed_tokens = chunk.own_end
        return {request: token.token_id for request, token in zip(caught_up, sampled, strict=True)}

    def _extend(self, draft: Draft, chosen: dict[Request, int | None]) -> bool:
        """Adds what was chosen; whether more is wanted, for which the shadow then has a token to compute."""
        token_id = chosen.get(draft.shadow.request)
        if token_id is None or token_id >= self.vocab_size:
            return False
        draft.token_ids.append(token_id)
        if len(draft.token_ids) == draft.num_tokens:
            return False
        draft.shadow.request.token_ids.append(token_id)
        return True
