"""The way of one answer: from the relay's frames to the client's bytes, and what is kept of it.

Owns everything from the hand-on to the last byte: stream or whole, errors before and after the first byte, a
client that leaves. The path of a token is one frame taken, one event made, one write.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from starlette.types import Receive, Send

from baton_common.errors import RequestFailed
from baton_common.frame_inbox import FrameQueue
from baton_common.tasks import spawn
from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, FinishReason, Prologue
from baton_edge_api import sse
from baton_edge_api.actor import Desk
from baton_edge_api.answer_objects import whole_answer
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.answers import NO_STORE, Answer, HeaderList, error_answer, error_event
from baton_edge_api.conversation_log import ConversationLog
from baton_edge_api.exchange import Exchange
from baton_edge_api.interruption import CancelReason, Interrupt, Interrupted, Interruption, Patience, Watchdog
from baton_edge_api.keys import KeyRing
from baton_edge_api.metrics import Metrics
from baton_edge_api.relay_call import CancelOutcome, RelayCall
from baton_edge_api.request_trace import RequestTrace
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.validation import ChatQuestion

_SSE_HEADERS: HeaderList = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


_END_SECONDS = 0.3
"""How long the end of a cancelled answer is waited for: it says what was used until then."""


@dataclass(frozen=True)
class ChatParts:
    """What a chat request needs of the process."""

    desk: Desk
    ring: KeyRing
    conversations: ConversationLog
    metrics: Metrics
    settings: EdgeSettings


class ChatAnswer:
    def __init__(
        self,
        parts: ChatParts,
        exchange: Exchange,
        envelope: Envelope,
        question: ChatQuestion,
        queue: FrameQueue,
        trace: RequestTrace,
        send: Send,
    ) -> None:
        self._settings = settings = parts.settings
        self._conversations = parts.conversations
        self._metrics = parts.metrics
        self._exchange = exchange
        self._envelope = envelope
        self._question = question
        self._trace = trace
        self._send = send
        self._interruption = Interruption()
        self.trip = self._interruption.trip
        """Ends it from outside."""
        self._call = RelayCall(parts.desk.node, queue, envelope, self._interruption.trip)
        patience = Patience(
            keep_alive=settings.keep_alive_seconds,
            idle=settings.idle_timeout,
            write=settings.write_timeout,
            total=settings.request_timeout,
        )
        self._watchdog = Watchdog(patience, self._interruption.trip)
        self._now = asyncio.get_running_loop().time
        began = self._now() - max(0.0, time.time() - exchange.started)
        self._so_far = AnswerSoFar(envelope, question, trace, began, exchange.started)
        self._streaming = False
        """Events may be written: the stream has begun and has not ended."""
        self._last_byte = 0.0
        """Unix time at which the client got its last byte, or was given up."""

    async def run(self, receive: Receive) -> None:
        client = asyncio.create_task(self._watch_client(receive))
        self._watchdog.start()
        status = "ok"
        try:
            async with self._interruption:
                await self._relay()
        except RequestFailed as failed:
            status = "error"
            await self._fail(failed.error)
        except Interrupted as interrupted:
            status = await self._give_up(interrupted.interrupt)
        finally:
            self._watchdog.stop()
            client.cancel()
            self._call.close()
        await self._settle(status)

    async def _watch_client(self, receive: Receive) -> None:
        while True:
            if (await receive())["type"] == "http.disconnect":
                error = ErrorBody(code="client_closed_request", message="The client left.")
                self._interruption.trip(Interrupt(error, "client_disconnected"))
                return

    async def _relay(self) -> None:
        question = self._question
        self._trace.admitted(model=question.chat.model, stream=question.chat.stream)
        instance = await self._call.hand_on(question.chat, self._settings.max_handoff_bytes)
        self._trace.handed_on(instance)
        prologue = self._so_far.prologue = await self._call.begin()
        self._trace.prologue()
        if question.chat.stream:
            await self._stream(prologue)
        else:
            await self._whole(prologue)
        self._last_byte = self._trace.wall()

    # A stream

    async def _stream(self, prologue: Prologue) -> None:
        question = self._question
        created = int(self._exchange.started)
        chunks = sse.ChunkWriter(
            self._envelope.request_id, prologue.model, created, include_usage=question.include_usage
        )
        headers = [*_SSE_HEADERS, *self._baton_headers(prologue)]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._write(b"".join(map(chunks.role, range(question.chat.sampling.n))))
        self._watchdog.streams(self._ping)
        end = await self._pump(chunks)
        await self._write(chunks.finish(self._reasons(end), prologue.citations) + self._usage(chunks, end))
        await self._keep(cut_short=False)
        await self._write(sse.DONE, more=False)

    async def _pump(self, chunks: sse.ChunkWriter) -> End:
        while isinstance(frame := await self._call.next(), Data):
            self._watchdog.last_frame = self._now()
            if event := chunks.data(frame):
                await self._write(event)
                self._so_far.add(frame, self._watchdog.last_write)
        return self._ended(frame)

    @staticmethod
    def _usage(chunks: sse.ChunkWriter, end: End) -> bytes:
        return chunks.usage(end.usage) if chunks.include_usage else b""

    async def _write(self, event: bytes, *, more: bool = True) -> None:
        watchdog = self._watchdog
        self._streaming = more
        watchdog.writing_since = self._now()
        await self._send({"type": "http.response.body", "body": event, "more_body": more})
        watchdog.writing_since = None
        watchdog.last_write = self._now()

    def _ping(self) -> None:
        spawn(self._send_ping())

    async def _send_ping(self) -> None:
        if self._streaming:
            await self._send({"type": "http.response.body", "body": sse.PING, "more_body": True})

    # A whole answer

    async def _whole(self, prologue: Prologue) -> None:
        while isinstance(frame := await self._call.next(), Data):
            self._watchdog.last_frame = self._now()
            self._so_far.add(frame, self._watchdog.last_frame)
        end = self._ended(frame)
        await self._keep(cut_short=False)
        body = whole_answer(
            self._envelope.request_id,
            prologue.model,
            int(self._exchange.started),
            self._so_far.answers,
            self._reasons(end),
            end.usage,
            prologue.citations,
            with_logprobs=self._question.chat.sampling.logprobs is not None,
        )
        await self._send_whole(Answer(200, body, [NO_STORE, *self._baton_headers(prologue)]))

    async def _send_whole(self, answer: Answer) -> None:
        watchdog = self._watchdog
        watchdog.writing_since = self._now()
        headers = answer.all_headers()
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer.body})
        watchdog.writing_since = None

    # Both

    def _ended(self, end: End) -> End:
        """The last frame, if it is the end of an answer; one that others cancelled is none."""
        self._so_far.end = end
        if end.finish_reason == "cancelled":
            text = "The request was cancelled before its answer was complete."
            raise RequestFailed.because("client_closed_request", text)
        return end

    def _reasons(self, end: End) -> tuple[FinishReason, ...]:
        """One for each answer that was asked for."""
        reasons = end.reasons[: len(self._so_far.answers)]
        return reasons + reasons[-1:] * (len(self._so_far.answers) - len(reasons))

    def _baton_headers(self, prologue: Prologue | None) -> HeaderList:
        headers = [(b"x-conversation-id", self._envelope.conversation_id.encode())]
        if self._question.ignored:
            headers.append((b"x-baton-ignored-parameters", ",".join(self._question.ignored).encode()))
        if prologue:
            headers += [
                (b"x-baton-model", _header_value(prologue.model)),
                (b"x-baton-replica", _header_value(prologue.replica)),
                (b"x-baton-cache", prologue.cache.encode()),
            ]
        return headers

    async def _keep(self, *, cut_short: bool) -> None:
        await self._so_far.keep(self._conversations, self._settings.record_seconds, cut_short=cut_short)

    # Ends that are not wanted

    async def _fail(self, error: ErrorBody) -> None:
        """The relay said no, or broke: the client is told, in the form that still fits."""
        cancelling = self._start_cancel("lease_lost")
        await self._tell(error)
        self._last_byte = self._trace.wall()
        await self._finish_cancel(cancelling)

    async def _give_up(self, interrupt: Interrupt) -> str:
        """The rest of the relay is told first; then the client, if it is there and listens."""
        cancelling = self._start_cancel(interrupt.cancel)
        self._trace.attributes["reason"] = interrupt.error.code
        if interrupt.cancel == "slow_consumer":
            self._metrics.failed(interrupt.error.code, interrupt.error.stop)
            self._exchange.abort()
        elif interrupt.cancel != "client_disconnected":
            await self._tell(interrupt.error)
        self._last_byte = self._trace.wall()
        await self._finish_cancel(cancelling)
        return "cancelled" if interrupt.cancel == "client_disconnected" else "error"

    def _start_cancel(self, reason: CancelReason) -> asyncio.Task[CancelOutcome] | None:
        return None if self._call.over else asyncio.create_task(self._call.cancel(reason))

    async def _finish_cancel(self, cancelling: asyncio.Task[CancelOutcome] | None) -> None:
        if cancelling is None:
            return
        await self._keep(cut_short=True)
        outcome = await cancelling
        if self._so_far.prologue and self._so_far.end is None:
            self._so_far.end = await self._call.last_frame(_END_SECONDS)
        self._trace.span("cancel", self._last_byte, acks=outcome.num_acks)
        if outcome.blocks_freed is not None:
            self._trace.attributes["blocks_freed"] = outcome.blocks_freed

    async def _tell(self, error: ErrorBody) -> None:
        self._metrics.failed(error.code, error.stop)
        self._trace.attributes["error"] = error.code
        try:
            async with asyncio.timeout(self._settings.write_timeout):
                if self._streaming:
                    await self._write(error_event(error), more=False)
                elif self._exchange.status:
                    self._exchange.abort()
                else:
                    answer = error_answer(error)
                    answer.headers.extend(self._baton_headers(self._call.prologue))
                    await self._send_whole(answer)
        except TimeoutError:
            self._exchange.abort()

    # After the last byte

    async def _settle(self, status: str) -> None:
        await self._keep(cut_short=True)
        self._so_far.describe()
        if status == "ok":
            self._so_far.count(self._metrics, self._now())
        tenant_id = self._envelope.tenant.tenant_id
        await self._trace.close(
            self._envelope.request_id, tenant_id, status=status, last_byte=self._last_byte
        )


def _header_value(text: str) -> bytes:
    """Printable ASCII; a model's name may hold anything."""
    return "".join(char if " " <= char <= "~" else "?" for char in text).encode()
