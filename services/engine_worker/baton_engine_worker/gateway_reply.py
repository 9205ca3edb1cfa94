"""What the gateway hears of one attempt: an acknowledgement, once, then a stream of frames.

Owns the acknowledgement and the frames around the answer's own: the first, the last, the errors. An error
after the acceptance is a frame to the gateway, never final: it may try elsewhere. Knows nothing of the engine
but its figures.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from baton_common.frame_sender import FrameStream
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import End, Error, Prologue, Usage
from baton_contracts.handoffs import Ack
from baton_engine import EngineError
from baton_engine_worker import prompting, translation
from baton_engine_worker.attempt import Attempt


class GatewayReply:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._ctx = attempt.ctx
        self._engine = attempt.parts.engine
        self._acknowledged = False

    def acknowledge(self, waiting: int | None = None, running: int | None = None) -> None:
        """Once: the first call counts. Without figures those of this moment."""
        if self._acknowledged:
            return
        self._acknowledged = True
        stats = self._engine.stats()
        waiting = stats.waiting if waiting is None else waiting
        running = stats.running if running is None else running
        instance = self._ctx.node.instance
        self._ctx.acknowledge(Ack(verdict="held", instance=instance, waiting=waiting + 1, running=running))

    async def refuse(self, error: EngineError) -> None:
        """In the acknowledgement, or by a frame where that has gone out already."""
        ctx = self._ctx
        body = translation.refusal(error, ctx.node.instance)
        ctx.attributes["refused"] = body.code
        if self._acknowledged:
            with self.stream() as stream:
                await self.send_error(stream, body)
            return
        waiting = running = None
        if self._engine.state == "ready":
            stats = self._engine.stats()
            waiting, running = stats.waiting, stats.running
        ctx.acknowledge(
            Ack(verdict="refused", instance=ctx.node.instance, error=body, waiting=waiting, running=running)
        )

    @contextmanager
    def stream(self) -> Generator[FrameStream, None, None]:
        outbox, handoff, ctx = self._attempt.parts.outbox, self._attempt.handoff, self._ctx
        subject = subjects.frames(handoff.gateway, handoff.guard, ctx.request_id)
        stream = outbox.open(subject, ctx.request_id, ctx.envelope.attempt, ctx.envelope.run_id)
        try:
            yield stream
        finally:
            outbox.ended(stream)

    def prologue(self, prompt_tokens: int | None = None) -> Prologue:
        """`prompt_tokens`: None if the engine never saw it."""
        attempt, handoff, instance = self._attempt, self._attempt.handoff, self._ctx.node.instance
        return Prologue(
            request_id=self._ctx.request_id,
            sender=instance,
            seq=0,
            model=handoff.work.model,
            replica=instance,
            gateway=handoff.gateway,
            guard=handoff.guard,
            num_answers=handoff.work.sampling.n,
            prompt_tokens=prompt_tokens or None,
            resumed=attempt.resumed if any(attempt.resumed) else (),
            citations=handoff.work.prompt.citations,
            ignored=prompting.ignored_parameters(handoff.work.prompt, attempt.parts.dialect),
        )

    async def send_error(self, stream: FrameStream, error: ErrorBody, usage: Usage | None = None) -> None:
        ctx = self._ctx
        frame = Error(
            request_id=ctx.request_id, sender=ctx.node.instance, error=error, final=False, usage=usage
        )
        await stream.send(frame)

    async def send_last(self, stream: FrameStream) -> None:
        """Once the engine has said its last word."""
        answers, causes, instance = self._attempt.answers, self._attempt.causes, self._ctx.node.instance
        if causes.handed_back and not answers.are_whole:
            await self.send_error(stream, translation.shutting_down(instance), answers.usage())
        elif causes.lost_sight and not answers.are_whole:
            await self.send_error(stream, translation.lost_sight(instance), answers.usage())
        elif answers.has_failed:
            await self.send_error(stream, translation.failure(answers.failure), answers.usage())
        else:
            await stream.send(answers.end())

    async def end_unseen(self) -> None:
        """Cancelled before the engine saw it: the whole reply."""
        ctx, answers, causes = self._ctx, self._attempt.answers, self._attempt.causes
        ctx.attributes["finish_reason"] = "cancelled"
        self.acknowledge()
        end = End(
            request_id=ctx.request_id,
            sender=ctx.node.instance,
            seq=0,
            finish_reason="cancelled",
            usage=answers.usage(),
        )
        with self.stream() as stream:
            if causes.handed_back:
                await self.send_error(stream, translation.shutting_down(ctx.node.instance))
            elif causes.lost_sight:
                await self.send_error(stream, translation.lost_sight(ctx.node.instance), answers.usage())
            else:
                await stream.send(self.prologue())
                await stream.send(end)
