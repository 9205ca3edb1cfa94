"""One request in the engine, from its handoff to its last frame.

    submit → refused: the ack says why (or, behind a slow grammar, an Error)
           → admitted: ack, Prologue, Data for each step, then End or Error(final=False)

Owns the engine's request: whatever ends this task ends it there too. What the gateway is told is
gateway_reply's; what is noted at the end is attempt_notes'.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from baton_common.frame_sender import FrameStream
from baton_contracts.frames import Cancel, Data
from baton_engine import Admission, CancelReport, EngineError, RequestDelta
from baton_engine_worker import attempt_notes, translation
from baton_engine_worker.attempt import Attempt
from baton_engine_worker.gateway_reply import GatewayReply
from baton_engine_worker.grammar_wait import GivenUp, GrammarWait
from baton_engine_worker.prepared_request import prepared_request

log = logging.getLogger(__name__)

LAST_WORD_SECONDS = 2.0
"""How long a request that is being ended may take to say its last word: a step, with much to spare."""


class EngineRun:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._parts = attempt.parts
        self._ctx = attempt.ctx
        self._handoff = attempt.handoff
        self._engine = attempt.parts.engine
        self._engine_id = attempt.engine_id
        self._answers = attempt.answers
        self._causes = attempt.causes
        self._reply = GatewayReply(attempt)
        self._deltas: asyncio.Queue[RequestDelta] = asyncio.Queue()
        self._grammar = GrammarWait()
        self._submitted = asyncio.Event()
        self._is_in_engine = False
        self._unsent: deque[Data] = deque()
        """Of the delta that was taken last."""
        self._last: RequestDelta | None = None
        self._last_is_said = False
        self._first_sent_at: float | None = None
        self._num_steps = 0

    async def run(self) -> None:
        self._ctx.on_cancel = self._on_cancel
        unwatch = self._watch_peers()
        try:
            await self._submit_and_answer()
        finally:
            if self._is_in_engine and self._last is None:
                self._engine.cancel(self._engine_id)
            unwatch()

    async def _submit_and_answer(self) -> None:
        try:
            admission = await self._submit()
        except EngineError as error:
            await self._reply.refuse(error)
            return
        except GivenUp:
            await self._reply.end_unseen()
            attempt_notes.remember_end(self._attempt)
            return
        finally:
            self._submitted.set()
        self._accept(admission)
        with self._reply.stream() as stream:
            await self._answer(stream, admission.prompt_tokens)

    async def _answer(self, stream: FrameStream, prompt_tokens: int) -> None:
        try:
            await stream.send(self._reply.prologue(prompt_tokens))
            await self._forward(stream)
        except asyncio.CancelledError:
            await self._end_early(stream)
            raise
        except Exception:  # a fault of this request's own way out: the replica goes on
            log.exception("the frames of a request could not be sent; another replica may do better")
            await self._reply.send_error(stream, translation.failure(None))
        finally:
            self._parts.heartbeat.note_finished()
            attempt_notes.remember_end(self._attempt)
            if self._last is not None:
                attempt_notes.trace(
                    self._attempt, self._last, first_sent_at=self._first_sent_at, num_steps=self._num_steps
                )

    async def _submit(self) -> Admission:
        """Raises EngineError if the engine does not take it, GivenUp if it was cancelled before that."""
        work = self._handoff.work
        request = await prepared_request(self._attempt, self._grammar, self._reply.acknowledge)
        self._answers.tell_tokens(
            request.prompt_token_ids or (),
            work.sampling,
            resumed=bool(work.resume_token_ids or work.resume_others),
        )
        self._grammar.check()
        admission = self._engine.submit(request, self._parts.bridge.on_delta(self._deltas.put_nowait))
        self._is_in_engine = True
        return admission

    def _accept(self, admission: Admission) -> None:
        self._ctx.attributes |= {
            "model": self._handoff.work.model,
            "attempt": self._ctx.envelope.attempt,
            "prompt_tokens": admission.prompt_tokens,
            "batch_size": admission.running,
            "queue_position": admission.queue_position,
        }
        self._reply.acknowledge(admission.waiting, admission.running)

    async def _forward(self, stream: FrameStream) -> None:
        """May be cut off at any await and called again: a frame counts as sent once its stream has it."""
        while not self._last_is_said:
            if not self._unsent and self._last is None:
                self._take(await self._deltas.get())
            while self._unsent:
                await stream.send(self._unsent.popleft())
                self._first_sent_at = self._first_sent_at or self._ctx.node.clock.wall()
            if self._last is not None:
                self._last_is_said = True
                await self._reply.send_last(stream)

    def _take(self, delta: RequestDelta) -> None:
        self._num_steps += bool(delta.token_ids)
        self._unsent.extend(self._answers.frames(delta))
        if delta.ends_request:
            self._last = delta
        elif delta.finish_reason == "error":
            self._engine.cancel(self._engine_id)

    # Ends that come from outside

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
            self._engine.cancel(self._engine_id)

    async def _on_cancel(self, cancel: Cancel) -> int | None:
        """Frees the pages within one step; returns how many."""
        if cancel.attempt not in (None, self._ctx.envelope.attempt):
            return None
        self._causes.cancel = self._causes.cancel or cancel
        self._causes.is_nobodys |= cancel.never_heard
        if self._grammar.give_up():
            return 0
        await self._submitted.wait()
        return (await self._stop()).blocks_freed

    def hand_back(self) -> None:
        """This process ends before the answer does: the gateway is told, and goes on elsewhere."""
        self._causes.handed_back = True
        if not self._grammar.give_up():
            self._engine.cancel(self._engine_id)

    async def _stop(self) -> CancelReport:
        report = asyncio.wrap_future(self._engine.cancel(self._engine_id))
        try:
            return await asyncio.wait_for(report, LAST_WORD_SECONDS)
        except TimeoutError:
            log.error("the engine did not confirm a cancel within %.0f s", LAST_WORD_SECONDS)
            return CancelReport(found=False)

    async def _end_early(self, stream: FrameStream) -> None:
        """The deadline passed, or this process ends: the engine is told, and its last word still goes out."""
        if self._last is None:
            await self._stop()
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await self._forward(stream)
        except TimeoutError:
            log.error("the engine said no last word within %.0f s", LAST_WORD_SECONDS)
