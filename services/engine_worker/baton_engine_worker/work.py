"""One request in the engine, from its handoff to its last frame.

    submit → refused: the ack says why (or, behind a slow grammar, an Error)
           → admitted: ack, Prologue, Data for each step, then End or Error(final=False)

Owns the engine's request: whatever ends this task ends it there too. An error after the acceptance goes to
the gateway as a frame, never to the edge: the gateway may try elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from baton_common.context import RequestContext
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Cancel, End, Error, Prologue, Usage
from baton_contracts.handoffs import Ack, EngineHandoff
from baton_engine import (
    Admission,
    CancelReport,
    EngineError,
    EngineRequest,
    InvalidParameter,
    RequestDelta,
)
from baton_engine_worker import asking, translation
from baton_engine_worker.answer_frames import AnswerFrames
from baton_engine_worker.dialect import Dialect
from baton_engine_worker.ended_attempt import Causes, record_of
from baton_engine_worker.engine_face import Engine
from baton_engine_worker.grammar_wait import GivenUp, GrammarWait
from baton_engine_worker.heartbeat import Heartbeat
from baton_engine_worker.phases import record_phases
from baton_engine_worker.prompt_tokens import PromptTokens
from baton_engine_worker.recent_ends import RecentEnds
from baton_engine_worker.steps import StepBridge
from baton_engine_worker.structures import can_be_eased

log = logging.getLogger(__name__)

MEASURED_CHUNK_TOKENS = 32
LAST_WORD_SECONDS = 2.0
"""How long a request that is being ended may take to say its last word: a step, with much to spare."""


@dataclass(frozen=True)
class Worker:
    """What all requests of this process share."""

    engine: Engine
    outbox: FrameOutbox
    bridge: StepBridge
    heartbeat: Heartbeat
    dialect: Dialect
    tokens: PromptTokens
    recent_ends: RecentEnds
    default_max_tokens: int
    runs: set[EngineRun] = field(default_factory=set["EngineRun"])

    async def handle(self, ctx: RequestContext, handoff: EngineHandoff) -> None:
        run = EngineRun(self, ctx, handoff)
        self.runs.add(run)
        try:
            await run.run()
        finally:
            self.runs.discard(run)

    def hand_back(self) -> None:
        """All that is held goes back to its gateways."""
        for run in self.runs:
            run.hand_back()


class EngineRun:
    def __init__(self, worker: Worker, ctx: RequestContext, handoff: EngineHandoff) -> None:
        work = handoff.work
        self._resumed = tuple(map(len, (work.resume_token_ids, *work.resume_others)))
        self._worker = worker
        self._ctx = ctx
        self._handoff = handoff
        envelope = ctx.envelope
        self._engine_id = f"{envelope.request_id}-{envelope.run_id}-{envelope.attempt}"
        self._deltas: asyncio.Queue[RequestDelta] = asyncio.Queue()
        self._grammar = GrammarWait()
        self._submitted = asyncio.Event()
        self._is_in_engine = False
        self._acknowledged = False
        self._answers = AnswerFrames(
            ctx.request_id, ctx.node.instance, worker.engine.tokenizer, num_resumed=sum(self._resumed)
        )
        self._prompt_tokens = 0
        self._causes = Causes()
        self._last: RequestDelta | None = None
        self._first_sent_at: float | None = None
        self._num_steps = 0
        self._taken_at = ctx.node.clock.wall()

    async def run(self) -> None:
        self._ctx.on_cancel = self._on_cancel
        unwatch = self._watch_peers()
        try:
            await self._submit_and_answer()
        finally:
            if self._is_in_engine and self._last is None:
                self._worker.engine.cancel(self._engine_id)
            unwatch()

    async def _submit_and_answer(self) -> None:
        try:
            admission = await self._submit()
        except EngineError as error:
            await self._refuse(error)
            return
        except GivenUp:
            await self._end_unseen()
            return
        finally:
            self._submitted.set()
        self._accept(admission)
        with self._stream() as stream:
            await self._answer(stream)

    async def _answer(self, stream: FrameStream) -> None:
        try:
            await stream.send(self._prologue())
            await self._forward(stream)
        except asyncio.CancelledError:
            await self._end_early(stream)
            raise
        except Exception:
            log.exception("the frames of a request could not be sent; another replica may do better")
            await self._send_error(stream, translation.failure(None))
        finally:
            self._worker.heartbeat.note_finished()
            self._remember_end()
            self._trace()

    async def _submit(self) -> Admission:
        """Raises EngineError if the engine does not take it, GivenUp if it was cancelled before that."""
        engine, work = self._worker.engine, self._handoff.work
        prompt = await self._worker.tokens.of_work(work)
        request = await self._with_grammar(prompt)
        self._answers.tell_tokens(
            request.prompt_token_ids or (),
            work.sampling,
            resumed=bool(work.resume_token_ids or work.resume_others),
        )
        self._grammar.check()
        admission = engine.submit(request, self._worker.bridge.on_delta(self._deltas.put_nowait))
        self._is_in_engine = True
        return admission

    async def _with_grammar(self, prompt: list[int]) -> EngineRequest:
        """Calls that may be made are held to their schemas as far as that can be done."""
        try:
            return await self._compiled(self._request(prompt))
        except InvalidParameter:
            if not can_be_eased(self._handoff.work):
                raise
        return await self._compiled(self._request(prompt, ease=True))

    def _request(self, prompt: list[int], *, ease: bool = False) -> EngineRequest:
        return asking.engine_request(
            self._handoff.work,
            prompt,
            self._worker.engine,
            self._worker.dialect,
            request_id=self._engine_id,
            default_max_tokens=self._worker.default_max_tokens,
            room=self._worker.tokens.room,
            seed=asking.seed_of_run(self._ctx.request_id, self._ctx.envelope.run_id),
            ease=ease,
        )

    async def _compiled(self, request: EngineRequest) -> EngineRequest:
        if request.sampling.structured is None:
            return request
        prepared = self._worker.engine.prepare(request.sampling)
        grammar = await self._grammar.until_ready(prepared, self._acknowledge)
        return replace(request, grammar=grammar)

    def _accept(self, admission: Admission) -> None:
        self._prompt_tokens = admission.prompt_tokens
        self._ctx.attributes |= {
            "model": self._handoff.work.model,
            "attempt": self._ctx.envelope.attempt,
            "prompt_tokens": admission.prompt_tokens,
            "batch_size": admission.running,
            "queue_position": admission.queue_position,
        }
        self._acknowledge(admission.waiting, admission.running)

    def _acknowledge(self, waiting: int | None = None, running: int | None = None) -> None:
        """Once: the first call counts. Without figures those of this moment."""
        if self._acknowledged:
            return
        self._acknowledged = True
        stats = self._worker.engine.stats()
        waiting = stats.waiting if waiting is None else waiting
        running = stats.running if running is None else running
        instance = self._ctx.node.instance
        self._ctx.acknowledge(Ack(verdict="held", instance=instance, waiting=waiting + 1, running=running))

    async def _refuse(self, error: EngineError) -> None:
        """In the acknowledgement, or by a frame where that has gone out already."""
        ctx = self._ctx
        body = translation.refusal(error, ctx.node.instance)
        ctx.attributes["refused"] = body.code
        if self._acknowledged:
            with self._stream() as stream:
                await self._send_error(stream, body)
            return
        waiting = running = None
        if self._worker.engine.state == "ready":
            stats = self._worker.engine.stats()
            waiting, running = stats.waiting, stats.running
        ctx.acknowledge(
            Ack(verdict="refused", instance=ctx.node.instance, error=body, waiting=waiting, running=running)
        )

    async def _end_unseen(self) -> None:
        """Cancelled before the engine saw it."""
        ctx = self._ctx
        ctx.attributes["finish_reason"] = "cancelled"
        self._acknowledge()
        end = End(
            request_id=ctx.request_id,
            sender=ctx.node.instance,
            seq=0,
            finish_reason="cancelled",
            usage=self._answers.usage(),
        )
        with self._stream() as stream:
            if self._causes.handed_back:
                await self._send_error(stream, translation.shutting_down(ctx.node.instance))
            elif self._causes.lost_sight:
                error = translation.lost_sight(ctx.node.instance)
                await self._send_error(stream, error, self._answers.usage())
            else:
                await stream.send(self._prologue())
                await stream.send(end)
        self._remember_end()

    @contextmanager
    def _stream(self) -> Generator[FrameStream, None, None]:
        stream = self._open_stream()
        try:
            yield stream
        finally:
            self._worker.outbox.ended(stream)

    def _open_stream(self) -> FrameStream:
        handoff, ctx = self._handoff, self._ctx
        subject = subjects.frames(handoff.gateway, handoff.guard, ctx.request_id)
        return self._worker.outbox.open(subject, ctx.request_id, ctx.envelope.attempt)

    def _prologue(self) -> Prologue:
        handoff, ctx = self._handoff, self._ctx
        return Prologue(
            request_id=ctx.request_id,
            sender=ctx.node.instance,
            seq=0,
            model=handoff.work.model,
            replica=ctx.node.instance,
            gateway=handoff.gateway,
            guard=handoff.guard,
            num_answers=handoff.work.sampling.n,
            prompt_tokens=self._prompt_tokens or None,
            resumed=self._resumed if any(self._resumed) else (),
            citations=handoff.work.prompt.citations,
            ignored=asking.ignored_parameters(handoff.work.prompt, self._worker.dialect),
        )

    async def _forward(self, stream: FrameStream) -> None:
        while self._last is None:
            delta = await self._deltas.get()
            self._num_steps += bool(delta.token_ids)
            for data in self._answers.frames(delta):
                await stream.send(data)
                self._first_sent_at = self._first_sent_at or self._ctx.node.clock.wall()
            if delta.ends_request:
                self._last = delta
                await self._send_last(stream)
            elif delta.finish_reason == "error":
                self._worker.engine.cancel(self._engine_id)

    async def _send_error(self, stream: FrameStream, error: ErrorBody, usage: Usage | None = None) -> None:
        ctx = self._ctx
        frame = Error(
            request_id=ctx.request_id, sender=ctx.node.instance, error=error, final=False, usage=usage
        )
        await stream.send(frame)

    async def _send_last(self, stream: FrameStream) -> None:
        answers = self._answers
        if self._causes.handed_back and not answers.are_whole:
            error = translation.shutting_down(self._ctx.node.instance)
            await self._send_error(stream, error, answers.usage())
        elif self._causes.lost_sight and not answers.are_whole:
            error = translation.lost_sight(self._ctx.node.instance)
            await self._send_error(stream, error, answers.usage())
        elif answers.has_failed:
            await self._send_error(stream, translation.failure(answers.failure), answers.usage())
        else:
            await stream.send(answers.end())

    def _watch_peers(self) -> Callable[[], None]:
        """Whoever waits for this answer: if one of them is gone, nobody can be told it any more."""
        leases, handoff = self._ctx.node.leases, self._handoff
        peers = {self._ctx.envelope.edge, handoff.gateway, handoff.guard}
        ends = [leases.watch(peer, self._on_peer_lost) for peer in peers]

        def unwatch() -> None:
            for end in ends:
                end()

        return unwatch

    def _on_peer_lost(self, instance: str) -> None:
        self._ctx.attributes["cancelled"] = f"lease_lost: {instance}"
        self._causes.peer_lost = True
        self._causes.gateway_lost |= instance == self._handoff.gateway
        self._grammar.give_up()
        if self._is_in_engine:
            self._worker.engine.cancel(self._engine_id)

    async def _on_cancel(self, cancel: Cancel) -> int | None:
        """Frees the pages within one step; returns how many."""
        if cancel.attempt not in (None, self._ctx.envelope.attempt):
            return None
        self._causes.cancel = self._causes.cancel or cancel
        if self._grammar.give_up():
            return 0
        await self._submitted.wait()
        return (await self._stop()).blocks_freed

    def hand_back(self) -> None:
        """This process ends before the answer does: the gateway is told, and goes on elsewhere."""
        self._causes.handed_back = True
        if not self._grammar.give_up():
            self._worker.engine.cancel(self._engine_id)

    async def _stop(self) -> CancelReport:
        report = asyncio.wrap_future(self._worker.engine.cancel(self._engine_id))
        try:
            return await asyncio.wait_for(report, LAST_WORD_SECONDS)
        except TimeoutError:
            log.error("the engine did not confirm a cancel within %.0f s", LAST_WORD_SECONDS)
            return CancelReport(found=False)

    async def _end_early(self, stream: FrameStream) -> None:
        """The deadline passed, or this process ends: the engine is told, and its last word still goes out."""
        await self._stop()
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await self._forward(stream)
        except TimeoutError:
            log.error("the engine said no last word within %.0f s", LAST_WORD_SECONDS)

    def _note_prefill(self, last: RequestDelta) -> None:
        """Short chunks ride along in steps of others: their time says nothing of a prompt's speed."""
        for chunk in last.timings.prefill_chunks if last.timings else ():
            if chunk.num_tokens >= MEASURED_CHUNK_TOKENS:
                self._worker.heartbeat.note_prefill(chunk.num_tokens, chunk.seconds)

    def _remember_end(self) -> None:
        ctx = self._ctx
        record = record_of(
            ctx.envelope,
            self._answers,
            self._causes,
            model=self._handoff.work.model,
            replica=ctx.node.instance,
            started_at=self._taken_at,
            ended_at=ctx.node.clock.wall(),
        )
        if self._causes.gateway_lost:
            self._worker.recent_ends.store_now(record)
        else:
            self._worker.recent_ends.note(self._handoff.gateway, record)

    def _trace(self) -> None:
        last, ctx = self._last, self._ctx
        if last is None:
            return
        self._note_prefill(last)
        usage = self._answers.usage()
        ctx.attributes["completion_tokens"] = usage.completion_tokens
        if any(self._resumed):
            ctx.attributes["resumed_tokens"] = sum(self._resumed)
        ctx.attributes["cached_tokens"] = usage.cached_tokens
        ctx.attributes["finish_reason"] = last.finish_reason or "error"
        ctx.attributes["blocks_freed"] = self._answers.blocks_freed()
        if self._worker.engine.state == "ready":
            ctx.attributes["kv_usage"] = round(self._worker.engine.stats().kv_usage, 4)
        record_phases(
            ctx.spans,
            last,
            taken_at=self._taken_at,
            first_sent_at=self._first_sent_at,
            ended_at=ctx.node.clock.wall(),
            num_steps=self._num_steps,
        )
