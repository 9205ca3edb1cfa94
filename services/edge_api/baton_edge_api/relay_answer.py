"""The way of one answer: from the relay's frames to the client's bytes.

Owns everything from the hand-on to the last byte: stream or whole, errors before and after the first byte, a
client that leaves. In what form an answer is told is its writer's, what is kept of it answer_books'. The path
of a token is one frame taken, one event made, one write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Receive, Send

from baton_common.errors import RequestFailed
from baton_common.frame_inbox import FrameQueue
from baton_common.recent_ends import RecentEnds
from baton_common.tasks import spawn
from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, Prologue
from baton_contracts.identifiers import request_ids_of
from baton_edge_api.actor import Desk
from baton_edge_api.answer_books import AnswerBooks
from baton_edge_api.answer_headers import baton_headers
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.answers import NO_STORE, Answer, HeaderList
from baton_edge_api.client_side import ClientSide
from baton_edge_api.exchange import Exchange
from baton_edge_api.interruption import CancelReason, Interrupt, Interrupted, Interruption, Patience, Watchdog
from baton_edge_api.keys import KeyRing
from baton_edge_api.limits.admission import Admission
from baton_edge_api.limits.grant import Grant
from baton_edge_api.metrics import Metrics
from baton_edge_api.question import Ending, Question
from baton_edge_api.record_log import RecordLog
from baton_edge_api.relay_call import Call, CancelOutcome, RelayCall
from baton_edge_api.request_trace import RequestTrace
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.several_calls import SeveralCalls

_END_SECONDS = 0.3
"""How long the end of a cancelled answer is waited for: it says what was used until then."""


@dataclass(frozen=True)
class RelayParts:
    """What a request over the relay needs of the process."""

    desk: Desk
    ring: KeyRing
    record_log: RecordLog
    ends: RecentEnds
    admission: Admission
    metrics: Metrics
    settings: EdgeSettings


class RelayAnswer:
    def __init__(
        self,
        parts: RelayParts,
        exchange: Exchange,
        envelope: Envelope,
        question: Question,
        queue: FrameQueue,
        trace: RequestTrace,
        send: Send,
        grant: Grant,
    ) -> None:
        self._settings = settings = parts.settings
        self._metrics = parts.metrics
        self._exchange = exchange
        self._envelope = envelope
        self._question = question
        self._writer = question.writer(envelope, int(exchange.started))
        self._trace = trace
        self._grant = grant
        self._interruption = Interruption()
        self.trip = self._interruption.trip
        """Ends it from outside."""
        self._call = _call(parts, queue, envelope, question, self._interruption.trip)
        patience = Patience(
            keep_alive=settings.keep_alive_seconds,
            idle=settings.idle_timeout,
            write=settings.write_timeout,
            total=envelope.deadline - envelope.sent_at,
        )
        self._watchdog = Watchdog(patience, self._interruption.trip)
        self._client = ClientSide(exchange, self._watchdog, send, settings.write_timeout)
        self._now = asyncio.get_running_loop().time
        began = self._now() - max(0.0, time.time() - exchange.started)
        self._so_far = AnswerSoFar(question.num_answers, began)
        self._books = AnswerBooks(
            parts.record_log,
            settings,
            envelope,
            question,
            self._call,
            self._so_far,
            trace,
            grant,
            asked_at=exchange.started,
        )
        self._last_byte = 0.0
        """Unix time at which the client got its last byte, or was given up."""

    async def run(self, receive: Receive) -> None:
        client = asyncio.create_task(self._watch_client(receive))
        self._watchdog.start()
        status = "ok"
        ending = Ending()
        try:
            async with self._interruption:
                await self._relay()
        except RequestFailed as failed:
            status = "error"
            ending = await self._fail(self._question.in_own_words(failed.error))
        except Interrupted as interrupted:
            status, ending = await self._give_up(interrupted.interrupt)
        except BaseException:
            spawn(self._call.cancel("lease_lost"))  # a fault of ours: nobody must go on computing for it
            raise
        finally:
            self._watchdog.stop()
            client.cancel()
            self._call.close()
        await self._settle(status, ending)

    async def _watch_client(self, receive: Receive) -> None:
        while True:
            if (await receive())["type"] == "http.disconnect":
                error = ErrorBody(code="client_closed_request", message="The client left.")
                self._interruption.trip(Interrupt(error, "client_disconnected"))
                return

    async def _relay(self) -> None:
        chat = self._question.chat
        self._trace.admitted(model=chat.model, stream=chat.stream)
        if more := self._question.more_requests:
            ids = request_ids_of(self._envelope.request_id, 1 + len(more))
            self._trace.attributes["other_request_ids"] = ids[1:]
        instance = await self._call.hand_on(chat, self._settings.max_handoff_bytes)
        self._trace.handed_on(instance)
        prologue = self._so_far.prologue = await self._call.begin()
        self._trace.prologue()
        if chat.stream:
            await self._stream(prologue)
        else:
            await self._whole(prologue)
        self._last_byte = self._trace.wall()

    async def _stream(self, prologue: Prologue) -> None:
        client, writer, so_far = self._client, self._writer, self._so_far
        await client.begin_stream(self._baton_headers(prologue))
        await client.write(writer.begin(prologue))
        client.ping_when_silent()
        await self._pump_stream()
        await client.write(writer.finish(so_far))
        await self._books.close()
        await client.write(writer.last(so_far), more=False)

    async def _pump_stream(self) -> None:
        watchdog, event_of, write = self._watchdog, self._writer.data, self._client.write
        while isinstance(frame := await self._call.next(), Data):
            watchdog.last_frame = self._now()
            if event := event_of(frame):
                await write(event)
                self._so_far.add(frame, watchdog.last_write)
            else:
                self._so_far.add(frame, None)
        self._ended(frame)

    async def _whole(self, prologue: Prologue) -> None:
        writer, so_far = self._writer, self._so_far
        writer.begin(prologue)
        while isinstance(frame := await self._call.next(), Data):
            self._watchdog.last_frame = self._now()
            writer.data(frame)
            so_far.add(frame, self._watchdog.last_frame)
        self._ended(frame)
        writer.finish(so_far)
        await self._books.close()
        answer = Answer(200, writer.last(so_far), [NO_STORE, *self._baton_headers(prologue)])
        await self._client.send_whole(answer)

    def _ended(self, end: End) -> None:
        """The last frame, if it is the end of an answer; one that others cancelled is none."""
        self._so_far.end = end
        if end.finish_reason == "cancelled":
            text = "The request was cancelled before its answer was complete."
            raise RequestFailed.because("client_closed_request", text)

    def _baton_headers(self, prologue: Prologue | None) -> HeaderList:
        return baton_headers(self._envelope.conversation_id, self._question.ignored, prologue)

    # Ends that are not wanted

    async def _fail(self, error: ErrorBody) -> Ending:
        """The relay said no, or broke: the client is told, in the form that still fits."""
        ending = Ending(cut_short=True, error=error)
        cancelling = self._start_cancel("lease_lost")
        if self._call.beginning is None:
            await self._grant.release(may_cost=not self._call.over)
        await self._tell(ending, error)
        self._last_byte = self._trace.wall()
        await self._finish_cancel(cancelling, ending)
        return ending

    async def _give_up(self, interrupt: Interrupt) -> tuple[str, Ending]:
        """The rest of the relay is told first; then the client, if it is there and listens."""
        ending = Ending(cut_short=True, error=interrupt.error)
        cancelling = self._start_cancel(interrupt.cancel)
        self._grant.free_seat()
        self._trace.attributes["reason"] = interrupt.error.code
        if interrupt.cancel == "slow_consumer":
            self._metrics.failed(interrupt.error.code, interrupt.error.stop)
            self._client.abort()
        elif interrupt.cancel != "client_disconnected":
            await self._tell(ending, interrupt.error)
        self._last_byte = self._trace.wall()
        await self._finish_cancel(cancelling, ending)
        return ("cancelled" if interrupt.cancel == "client_disconnected" else "error"), ending

    def _start_cancel(self, reason: CancelReason) -> asyncio.Task[CancelOutcome] | None:
        return None if self._call.over else asyncio.create_task(self._call.cancel(reason))

    async def _finish_cancel(self, cancelling: asyncio.Task[CancelOutcome] | None, ending: Ending) -> None:
        if cancelling is None:
            await self._hear_end(0.0)  # of several, some may have ended well
            return
        await self._books.keep(ending)
        outcome = await cancelling
        await self._hear_end(_END_SECONDS)
        self._trace.span("cancel", self._last_byte, acks=outcome.num_acks)
        if outcome.blocks_freed is not None:
            self._trace.attributes["blocks_freed"] = outcome.blocks_freed

    async def _hear_end(self, seconds: float) -> None:
        if self._call.beginning and self._so_far.end is None:
            self._so_far.end = await self._call.last_frame(seconds)

    async def _tell(self, ending: Ending, error: ErrorBody) -> None:
        """What a stream has brought so far is kept before its last event, as that of a good end is."""
        self._metrics.failed(error.code, error.stop)
        self._trace.failed(error)
        event = b""
        if self._client.is_streaming:
            event = self._writer.broken(error, self._so_far)
            await self._books.keep(ending)
        await self._client.tell(error, event, self._baton_headers(self._call.prologue))

    # After the last byte

    async def _settle(self, status: str, ending: Ending) -> None:
        await self._books.keep(ending)
        if self._call.beginning or status == "cancelled":
            await self._books.charge()
        else:
            await self._grant.release(may_cost=not self._call.over)
        self._so_far.describe(self._trace.attributes)
        if status == "ok":
            self._so_far.count(self._metrics, self._now())
        tenant_id = self._envelope.tenant.tenant_id
        await self._trace.close(
            self._envelope.request_id, tenant_id, status=status, last_byte=self._last_byte
        )


def _call(
    parts: RelayParts,
    queue: FrameQueue,
    envelope: Envelope,
    question: Question,
    trip: Callable[[Interrupt], None],
) -> Call:
    def call(queue: FrameQueue, envelope: Envelope) -> RelayCall:
        return RelayCall(
            parts.desk.node, queue, envelope, trip, parts.ends, plain=parts.settings.plain_gateway
        )

    if more := question.more_requests:
        return SeveralCalls(parts.desk, call, queue, envelope, (question.chat, *more))
    return call(queue, envelope)
