"""The router's inbox: read the prompt, reserve a seat, dispatch, and the replica has it; else the next best,
else a 503.

Its part ends with its own acknowledgement. An answer never passes through here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from baton_common.context import RequestContext
from baton_common.errors import BusError, BusTimeout, NoResponders, RequestFailed
from baton_common.tracing import OpenSpan
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Cancel
from baton_contracts.handoffs import Ack, EngineHandoff, RouteHandoff
from baton_inference_router.prefix_index import PrefixIndex
from baton_inference_router.prompt_reading import ReadPrompt, is_worth_reading, read_prompt
from baton_inference_router.refusals import nobody_takes
from baton_inference_router.replicas import ReplicaTable, Seat
from baton_inference_router.scoring import Asked, Candidate, Choice, Gate, ranked
from baton_inference_router.settings import Settings

log = logging.getLogger(__name__)

SCORES_TOLD = 8
"""Scores of so many replicas stand in the trace, the best first."""

Rank = Callable[[list[Candidate], Asked, Mapping[str, int], Gate, int], list[Choice]]
"""As `ranked`: the best few replicas that could take it, in order."""


@dataclass(frozen=True)
class _Absent:
    """Nobody listens there any more."""


class Router:
    def __init__(
        self, table: ReplicaTable, index: PrefixIndex, settings: Settings, rank: Rank = ranked
    ) -> None:
        self._rank = rank
        self._table = table
        self._index = index
        self._prefix_aware = settings.router_prefix_aware
        self._tokens_seconds = settings.router_tokens_seconds
        self._dispatch_seconds = settings.router_dispatch_seconds
        self._cooldown_seconds = settings.router_cooldown_seconds
        self._gate = Gate(settings.router_imbalance_requests)

    async def handle(self, ctx: RequestContext, handoff: RouteHandoff) -> None:
        """Raises RequestFailed when no replica takes the request: the gateway gets the reason as its ack."""
        ctx.on_cancel = _finish_anyway
        model = handoff.work.model
        tried = set(handoff.avoid_replicas)
        refusals: list[ErrorBody] = []
        ctx.attributes["model"] = model
        prompt = await self._read(ctx, handoff, self._table.candidates(model, tried))
        while True:
            possible = self._table.candidates(model, tried)
            order = self._ranked(prompt, possible)
            if not order:
                known = self._table.of_model(model)
                raise RequestFailed(nobody_takes(model, known, refusals, num_ready=len(possible)))
            ctx.attributes["candidates"] = len(possible)
            answer = await self._try(ctx, handoff, prompt, order)
            tried.add(order[0].replica)
            if isinstance(answer, _Absent):
                continue
            if answer.verdict == "held":
                ctx.attributes["replica"] = order[0].replica
                ctx.acknowledge(answer)
                return
            refusals.append(self._judge(answer))

    async def _read(
        self, ctx: RequestContext, handoff: RouteHandoff, possible: list[Candidate]
    ) -> ReadPrompt:
        """Where there is no choice, or nobody with room, or nothing to spare, nobody is asked."""
        has_choice = sum(not each.full for each in possible) >= 2
        if not (self._prefix_aware and has_choice and is_worth_reading(handoff.work)):
            return ReadPrompt(handoff.work)
        with ctx.spans.span("read_prompt") as span:
            prompt = await read_prompt(ctx.node.bus, ctx.request_id, handoff.work, self._tokens_seconds)
            span.set(prompt_tokens=prompt.num_tokens, blocks=len(prompt.chain))
        return prompt

    def _ranked(self, prompt: ReadPrompt, possible: list[Candidate]) -> list[Choice]:
        cached = prompt.cached_tokens(self._index, possible)
        return self._rank(possible, prompt.asked, cached, self._gate, SCORES_TOLD)

    async def _try(
        self, ctx: RequestContext, handoff: RouteHandoff, prompt: ReadPrompt, order: list[Choice]
    ) -> Ack | _Absent:
        best = order[0]
        seat = self._table.reserve(best.replica, max(0, prompt.num_tokens - best.cached_tokens))
        self._index.expect(best.replica, prompt.chain)
        try:
            with ctx.spans.span("dispatch", replica=best.replica, load=best.load) as span:
                _explain(span, prompt, order)
                answer = await self._dispatch(ctx, handoff, prompt, seat)
                span.set(verdict="absent" if isinstance(answer, _Absent) else answer.verdict)
            return answer
        finally:
            seat.release()
            if not seat.accepted:
                self._index.expect_no_more(best.replica, prompt.chain)

    async def _dispatch(
        self, ctx: RequestContext, handoff: RouteHandoff, prompt: ReadPrompt, seat: Seat
    ) -> Ack | _Absent:
        replica = seat.replica
        try:
            raw = await ctx.node.bus.request(
                subjects.engine(replica, ctx.request_id),
                _onward(ctx, handoff, prompt),
                timeout=self._dispatch_seconds,
            )
            ack = Ack.decode(raw)
        except NoResponders:
            self._table.mark_dead(replica)
            return _Absent()
        except (BusTimeout, MalformedMessage) as error:
            # It may have taken the request all the same, so nobody else can be given this attempt.
            log.warning("dispatch to %s: %s", replica, error)
            self._table.cool_down(replica, self._cooldown_seconds)
            raise RequestFailed(_did_not_take_it(replica, error)) from None
        except BusError as error:
            log.warning("dispatch to %s: %s", replica, error)
            raise RequestFailed.because(
                "stop_failed", "The replica could not be handed the request.", stop="engine_worker"
            ) from None
        if ack.verdict == "held":
            seat.accept(ack)
        else:
            seat.refuse(ack)
        return ack

    def _judge(self, ack: Ack) -> ErrorBody:
        """The refusal to remember. Raises RequestFailed for what no other replica would judge otherwise."""
        error = ack.error or ErrorBody(
            code="queue_full", message="The replica is busy.", stop="engine_worker"
        )
        if error.status < 500:
            raise RequestFailed(error)
        return error


async def _finish_anyway(cancel: Cancel) -> None:
    """A dispatch takes a millisecond, and the gateway must hear which replica has it: it cancels that one."""
    del cancel


def _did_not_take_it(replica: str, error: BusTimeout | MalformedMessage) -> ErrorBody:
    what = (
        f"did not take the request within {error.seconds:.1f} s"
        if isinstance(error, BusTimeout)
        else "was handed the request and answered what can't be read"
    )
    return ErrorBody(
        code="stop_unresponsive",
        message=f"Replica {replica} {what}.",
        stop="engine_worker",
        replica=replica,
    )


def _explain(span: OpenSpan, prompt: ReadPrompt, order: list[Choice]) -> None:
    """Why this one: the scores of the first few, in seconds of work before the first token."""
    best = order[0]
    scores = tuple(
        f"{choice.replica} {choice.seconds:.3f} s, load {choice.load}, cached {choice.cached_tokens}"
        + (", gated" if choice.gated else "")
        + (", held back" if choice.held_back else "")
        for choice in order
    )
    span.set(
        score_seconds=round(best.seconds, 4),
        prompt_tokens=prompt.num_tokens,
        cached_tokens=best.cached_tokens,
        waiting_tokens=best.candidate.waiting_tokens,
        kv_usage=best.candidate.kv_usage,
        scores=scores,
    )


def _onward(ctx: RequestContext, handoff: RouteHandoff, prompt: ReadPrompt) -> bytes:
    envelope = ctx.envelope.model_copy(
        update={"sent_at": ctx.node.clock.wall(), "parent_span_id": ctx.spans.root_id}
    )
    return EngineHandoff(
        envelope=envelope,
        work=prompt.work,
        gateway=handoff.gateway,
        guard=handoff.guard,
        router=ctx.node.instance,
    ).encode()
