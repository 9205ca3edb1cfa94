"""An actor: one typed, bounded inbox; each request it takes is one task under a limit.

Owns the life of a request inside one process: decode, acknowledge, run, answer for failure, trace, release.
Knows nothing of what a stop does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from baton_common.bus import BusMessage
from baton_common.context import NOTE_SECONDS, RequestContext
from baton_common.errors import RequestFailed
from baton_common.intake import InboxLimits, Intake
from baton_common.logs import request_id_var
from baton_common.tasks import spawn
from baton_common.tracing import SpanRecorder
from baton_contracts import CONTRACT_VERSION
from baton_contracts.base import MalformedMessage
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Cancel
from baton_contracts.handoffs import Ack, Handoff

if TYPE_CHECKING:
    from baton_common.node import Node

H = TypeVar("H", bound=Handoff)
_CANCEL_AGAIN_SECONDS = 0.05


class _Baton(Generic[H]):
    """One held request: its context, its task, its place in the process's books."""

    def __init__(self, context: RequestContext, message: H, held_at: float) -> None:
        self.context = context
        self.message = message
        self.held_at = held_at
        self.task: asyncio.Task[None] | None = None
        self.cancelled_because: str | None = None

    async def stop(self, cancel: Cancel) -> int | None:
        if cancel.attempt is None:
            self.cancelled_because = cancel.reason
        if self.context.on_cancel:
            return await self.context.on_cancel(cancel)
        if self.task and cancel.attempt in (None, self.message.envelope.attempt):
            self.cancelled_because = cancel.reason
            await _end(self.task)
        return None


async def _end(task: asyncio.Task[None]) -> None:
    """Cancels until it has ended: on Python 3.11 `asyncio.wait_for` swallows a cancel that arrives together
    with its result."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_AGAIN_SECONDS)


class Actor(Intake, Generic[H]):
    """`handle` runs for each request; RequestFailed from it goes to the client, anything else becomes
    `stop_failed` for that request only."""

    def __init__(
        self,
        node: Node,
        *,
        subject: str,
        message: type[H],
        handle: Callable[[RequestContext, H], Awaitable[None]],
        stop_number: int,
        limits: InboxLimits | None = None,
        queue: str | None = None,
        ack_by_handler: bool = False,
    ) -> None:
        super().__init__(node, subject, limits or InboxLimits(), queue)
        self._message = message
        self._handle = handle
        self._stop_number = stop_number
        self._ack_by_handler = ack_by_handler
        self._held: dict[str, _Baton[H]] = {}

    @property
    def num_held(self) -> int:
        return len(self._held)

    async def finished(self) -> None:
        """Returns when nothing is held."""
        while tasks := [baton.task for baton in self._held.values() if baton.task]:
            await asyncio.wait(tasks)

    def _on_message(self, message: BusMessage) -> None:
        verdict = self._judge(message)
        if isinstance(verdict, Ack):
            self._answer(message.reply, verdict)
            return
        baton = self._take(verdict, message.reply)
        baton.task = asyncio.create_task(self._run(baton))

    def _judge(self, message: BusMessage) -> H | Ack:
        """The message to be held, or the answer that says why not."""
        node = self._node
        if not self._taking or self._is_full:
            return Ack(verdict="busy", instance=node.instance)
        try:
            handoff = self._message.decode(message.payload)
        except MalformedMessage as error:
            return self._refusal(ErrorBody(code="invalid_request", message=str(error), stop=node.service))
        envelope = handoff.envelope
        if envelope.contract.split(".")[0] != CONTRACT_VERSION.split(".")[0]:
            text = f"{node.service} speaks contract {CONTRACT_VERSION}, not {envelope.contract}."
            return self._refusal(ErrorBody(code="invalid_request", message=text, stop=node.service))
        if envelope.deadline <= node.clock.wall():
            text = f"The deadline had passed when {node.service} was reached."
            return self._refusal(ErrorBody(code="deadline_exceeded", message=text, stop=node.service))
        if held := self._held.get(envelope.request_id):
            return self._again(held, handoff)
        return handoff

    def _again(self, held: _Baton[H], handoff: H) -> Ack:
        """The same handoff once more (its ack was lost) is acknowledged again; another one is refused."""
        mine, theirs = held.message.envelope, handoff.envelope
        if (mine.run_id, mine.attempt) == (theirs.run_id, theirs.attempt):
            return Ack(verdict="held", instance=self._node.instance)
        text = f"Request {mine.request_id} is already under way. Use a new request id."
        return self._refusal(ErrorBody(code="conflict", message=text, stop=self._node.service))

    def _refusal(self, error: ErrorBody) -> Ack:
        return Ack(verdict="refused", instance=self._node.instance, error=error)

    def _answer(self, reply: str, ack: Ack, within: float = 0.0) -> None:
        if reply:
            spawn(self._node.bus.publish(reply, ack.encode(), within=within))

    def _take(self, handoff: H, reply: str) -> _Baton[H]:
        node = self._node
        envelope = handoff.envelope
        spans = SpanRecorder(
            node.service, node.instance, self._stop_number, node.clock, envelope.parent_span_id
        )
        now = node.clock.wall()
        spans.add("hop", min(envelope.sent_at, now), now, parent=envelope.parent_span_id)
        context = RequestContext(node, envelope, spans)
        if self._ack_by_handler:
            context.bind_acknowledge(lambda ack: self._answer(reply, ack))
        else:
            within = NOTE_SECONDS if handoff.is_answered_to_sender else 0.0
            self._answer(reply, Ack(verdict="held", instance=node.instance), within)
        baton = _Baton(context, handoff, now)
        self._held[envelope.request_id] = baton
        return baton

    async def _run(self, baton: _Baton[H]) -> None:
        context = baton.context
        request_id_var.set(context.request_id)
        envelope = context.envelope
        release = self._node.cancels.register(
            envelope.request_id, baton.stop, envelope.run_id, envelope.attempt
        )
        status = "ok"
        try:
            if not self._ack_by_handler and baton.message.is_news_to_edge:
                await context.note_held()
            async with asyncio.timeout(context.remaining_seconds()), self._turns:
                self._note_wait(baton)
                await self._handle(context, baton.message)
        except asyncio.CancelledError:
            status = "cancelled"
            if baton.cancelled_because is None:  # not a cancel of the request: this process is ending
                await context.fail(self._error("shutting_down", "was stopped while it held the request"))
        except Exception as error:  # the boundary between one request and the process
            status = "error"
            await context.fail(self._explain(error))
        finally:
            release()
            self._held.pop(context.request_id, None)
            await self._trace(baton, status)

    def _note_wait(self, baton: _Baton[H]) -> None:
        now = self._node.clock.wall()
        if now - baton.held_at > 0.0005:
            baton.context.spans.add("mailbox", baton.held_at, now)

    def _explain(self, error: Exception) -> ErrorBody:
        if isinstance(error, RequestFailed):
            return error.error
        if isinstance(error, TimeoutError):
            return self._error("deadline_exceeded", "did not finish before the request's deadline")
        self._node.log.exception("request failed")
        return self._error("stop_failed", "failed on this request; the log has the cause")

    def _error(self, code: str, what: str) -> ErrorBody:
        service = self._node.service
        return ErrorBody(code=code, message=f"{service} {what}.", stop=service)  # pyright: ignore[reportArgumentType]

    async def _trace(self, baton: _Baton[H], status: str) -> None:
        context = baton.context
        if baton.cancelled_because:
            context.attributes["cancelled"] = baton.cancelled_because
        context.spans.close("handle", baton.held_at, status=status, attributes=context.attributes)
        await self._node.publish_spans(context.spans, context.envelope)
