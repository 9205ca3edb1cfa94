"""What a handler sees of the request it holds: its envelope, its spans, the way on and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from baton_common.cancels import OnCancel
from baton_common.errors import BusError, BusUnavailable
from baton_common.handoff import ACK_SECONDS, hand_on
from baton_common.tracing import SpanRecorder
from baton_contracts import subjects
from baton_contracts.base import WireModel
from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Error, Held, encode_frame
from baton_contracts.handoffs import Ack
from baton_contracts.spans import AttributeValue
from baton_contracts.subjects import Service

if TYPE_CHECKING:
    from baton_common.node import Node

BuildHandoff = Callable[[Envelope], WireModel]

NOTE_SECONDS = 0.003
"""A note of who holds a request may wait so long for what its stop sends next: it is for those who watch over
it, and nobody goes on because of it."""
BUS_AWAY_PAUSE_SECONDS = 0.1


class RequestContext:
    """Owned by the actor's task for this request; gone when the task is."""

    def __init__(self, node: Node, envelope: Envelope, spans: SpanRecorder) -> None:
        self.node = node
        self.envelope = envelope
        self.spans = spans
        self.on_cancel: OnCancel | None = None
        """Set by a handler that has something better to do on cancel than to be stopped."""
        self.attributes: dict[str, AttributeValue] = {}
        """Attributes of this stop's own span."""
        self._acknowledge: Callable[[Ack], None] | None = None

    @property
    def request_id(self) -> str:
        return self.envelope.request_id

    @property
    def _edge_subject(self) -> str:
        return subjects.reply(self.envelope.edge, self.request_id)

    def remaining_seconds(self) -> float:
        return self.envelope.deadline - self.node.clock.wall()

    def _next_envelope(self, attempt: int | None) -> Envelope:
        return self.envelope.model_copy(
            update={
                "sent_at": self.node.clock.wall(),
                "parent_span_id": self.spans.root_id,
                "attempt": attempt or self.envelope.attempt,
            }
        )

    async def hand_on(
        self,
        subject: str,
        build: BuildHandoff,
        *,
        to: Service,
        attempt: int | None = None,
        ack_seconds: float = ACK_SECONDS,
    ) -> Ack:
        """Hands the request to the group of `to`. Raises RequestFailed with the error for the client."""
        with self.spans.span("hand_on", to=to) as span:
            ack = await hand_on(
                self.node.bus,
                self.node.clock,
                subject,
                lambda: build(self._next_envelope(attempt)).encode(),
                to=to,
                deadline=self.envelope.deadline,
                ack_seconds=ack_seconds,
            )
            span.set(instance=ack.instance)
        return ack

    def bind_acknowledge(self, acknowledge: Callable[[Ack], None]) -> None:
        self._acknowledge = acknowledge

    def acknowledge(self, ack: Ack) -> None:
        """For actors that decide inside the handler (`ack_by_handler`); later calls do nothing."""
        acknowledge, self._acknowledge = self._acknowledge, None
        if acknowledge:
            acknowledge(ack)

    async def note_held(self) -> None:
        """Tells the edge who holds the baton now, so it knows whose silence to watch."""
        note = Held(request_id=self.request_id, sender=self.node.instance, stop=self.node.service)
        try:
            await self.node.bus.publish(self._edge_subject, encode_frame(note), within=NOTE_SECONDS)
        except BusError as error:
            self.node.log.warning("edge not reached: %s", error)

    async def fail(self, error: ErrorBody, *, is_late: bool = False) -> None:
        """The request ends here, with this error for the client. If the sender still waits for the ack, it
        gets the error instead. Where the bus is away, it is told when that is back: nobody else will.
        `is_late`: its id may be another run's by now, which must not take it for its own."""
        error = error if error.stop else error.model_copy(update={"stop": self.node.service})
        if self._acknowledge:
            self.acknowledge(Ack(verdict="refused", instance=self.node.instance, error=error))
            return
        frame = Error(
            request_id=self.request_id,
            attempt=self.envelope.attempt,
            sender=self.node.instance,
            error=error,
            run_id=self.envelope.run_id if is_late else None,
        )
        await self.tell_last(self._edge_subject, frame)

    async def tell_last(self, subject: str, frame: Error) -> None:
        """That the request is over. Said again if the bus may have lost it."""
        self.node.last_words.note(subject, frame, self.envelope.run_id)
        await self.tell(subject, encode_frame(frame))

    async def tell(self, subject: str, payload: bytes) -> None:
        """What nobody asks for. While the bus is away it waits, until the request's deadline; a process
        that leaves does not, for its lease ends with it."""
        while True:
            try:
                await self.node.bus.publish(subject, payload)
            except BusUnavailable as error:
                if self.remaining_seconds() <= 0 or self.node.state in ("draining", "gone"):
                    self.node.log.warning("not told: %s", error)
                    return
                await asyncio.sleep(BUS_AWAY_PAUSE_SECONDS)
            except BusError as error:
                self.node.log.warning("not told: %s", error)
                return
            else:
                return
