"""A responder: answers typed questions beside the relay (embeddings, ingestion, books, console pages).

Owns decoding, bounded concurrency, the time limit and the error that stands in a reply. A question is plain
request and reply: nobody holds the baton for it. Knows nothing of what the answer means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from baton_common.bus import BusMessage
from baton_common.errors import BusError, BusUnavailable, RequestFailed
from baton_common.intake import InboxLimits, Intake
from baton_common.logs import request_id_var
from baton_common.tasks import spawn
from baton_contracts.base import MalformedMessage, WireModel
from baton_contracts.errors import ErrorBody
from baton_contracts.subjects import request_id_of

if TYPE_CHECKING:
    from baton_common.node import Node

Q = TypeVar("Q", bound=WireModel)
R = TypeVar("R", bound=WireModel)


@dataclass(frozen=True)
class ResponderLimits(InboxLimits):
    concurrency: int = 16
    mailbox: int = 64
    answer_seconds: float = 30.0
    """Longest wait plus work for one question; then the answer is `deadline_exceeded`."""


class Responder(Intake, Generic[Q, R]):
    """`answer(request_id, query)` runs for each question. RequestFailed from it becomes the reply's `error`,
    anything else `stop_failed`; the process goes on. `reply` must have a field `error: ErrorBody | None`."""

    def __init__(
        self,
        node: Node,
        *,
        subject: str,
        query: type[Q],
        reply: type[R],
        answer: Callable[[str, Q], Awaitable[R]],
        limits: ResponderLimits | None = None,
        queue: str | None = None,
    ) -> None:
        limits = limits or ResponderLimits()
        super().__init__(node, subject, limits, queue)
        self._query = query
        self._reply = reply
        self._answer = answer
        self._answer_seconds = limits.answer_seconds
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_held(self) -> int:
        return len(self._tasks)

    async def finished(self) -> None:
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _on_message(self, message: BusMessage) -> None:
        verdict = self._judge(message)
        if isinstance(verdict, ErrorBody):
            spawn(self._send(message, self._failed(verdict)))
            return
        task = asyncio.create_task(self._run(message, verdict))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _judge(self, message: BusMessage) -> Q | ErrorBody:
        """The question, or the error that says why it is not answered."""
        service = self._node.service
        if not self._taking:
            text = f"{service} is shutting down. Ask again: another instance answers, or its successor."
            return self._error("shutting_down", text, retry_after_seconds=1)
        if self._is_full:
            text = f"{service} has {self.num_held} questions to answer and takes no more. Try again shortly."
            return self._error("stop_busy", text, retry_after_seconds=1)
        try:
            return self._query.decode(message.payload)
        except MalformedMessage as error:
            return self._error("invalid_request", str(error))

    async def _run(self, message: BusMessage, query: Q) -> None:
        request_id = request_id_of(message.subject)
        request_id_var.set(request_id)
        try:
            async with asyncio.timeout(self._answer_seconds), self._turns:
                reply = await self._answer(request_id, query)
        except asyncio.CancelledError:  # this process is ending
            text = f"{self._node.service} was stopped before it had the answer."
            await self._send(message, self._failed(self._error("shutting_down", text, retry_after_seconds=1)))
            raise
        except Exception as error:  # the boundary between one question and the process
            reply = self._failed(self._explain(error))
        await self._send(message, reply)

    def _explain(self, error: Exception) -> ErrorBody:
        service = self._node.service
        if isinstance(error, RequestFailed):
            body = error.error
            return body if body.stop else body.model_copy(update={"stop": service})
        if isinstance(error, TimeoutError):
            text = f"{service} had no answer within {self._answer_seconds:.0f} s."
            return self._error("deadline_exceeded", text)
        self._node.log.exception("question on %s failed", self._subject)
        return self._error("stop_failed", f"{service} failed on this question; its log has the cause.")

    def _error(self, code: str, text: str, retry_after_seconds: float | None = None) -> ErrorBody:
        return ErrorBody(
            code=code,  # pyright: ignore[reportArgumentType]  # checked by pydantic
            message=text,
            stop=self._node.service,
            retry_after_seconds=retry_after_seconds,
        )

    def _failed(self, error: ErrorBody) -> R:
        return self._reply.model_validate({"error": error})

    async def _send(self, message: BusMessage, reply: R) -> None:
        """A reply that the bus refuses (it is too large) is replaced by an error, so nobody waits in vain."""
        if not message.reply:
            return
        bus, log = self._node.bus, self._node.log
        try:
            await bus.publish(message.reply, reply.encode())
        except BusUnavailable as error:
            log.debug("reply not sent: %s", error)
        except BusError as error:
            log.warning("reply not sent: %s", error)
            text = f"The answer of {self._node.service} does not fit into one message. Ask for less at once."
            await bus.publish(message.reply, self._failed(self._error("request_too_large", text)).encode())
