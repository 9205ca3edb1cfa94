"""The pump of one answer: frames from the engine in, filtered frames to the edge out, until there is an end.

Owns what a broken, cancelled, superseded or blocked stream means for the client. The gateway owns the
request: while it may still go on with another attempt, a vanished engine is not the end. Does not know how
text is judged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from baton_common.bus import Bus
from baton_common.errors import BusError, StreamBroken
from baton_common.frame_inbox import AnyFrame, FrameQueue, QueueOverflow
from baton_common.frame_sender import FrameStream
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.frames import Cancel, Data, End, Error, FinishReason, Held, Prologue, Usage
from baton_output_guardrails.answer_filter import Passed
from baton_output_guardrails.answers import Answers
from baton_output_guardrails.progress import DoesNotFit, Progress


@dataclass(frozen=True)
class Patience:
    """Seconds that a silent other side is given."""

    cancel: float = 2.0
    """For the engine's last word after a cancel."""
    takeover: float = 6.0
    """For the gateway to go on elsewhere or give up, after an engine is gone. Longer than a lease. It ends
    with the word that another one took the request: that one is the gateway's to watch."""
    stall: float = 2.0
    """Of silence before the sender is asked whether it sent more."""


@dataclass
class Tally:
    """What the trace says about this stream."""

    frames: int = 0
    attempts: set[int] = field(default_factory=set[int])
    started: float | None = None
    """Wall time of the first frame."""
    busy_seconds: float = 0.0
    busiest_seconds: float = 0.0
    """Longest time between a frame taken and its successor sent."""
    completion_tokens: int = 0

    def note(self, seconds: float) -> None:
        self.frames += 1
        self.busy_seconds += seconds
        self.busiest_seconds = max(self.busiest_seconds, seconds)


class Pump:
    def __init__(
        self,
        bus: Bus,
        queue: FrameQueue,
        out: FrameStream,
        answers: Answers,
        *,
        patience: Patience,
        wall: Callable[[], float],
    ) -> None:
        self._bus = bus
        self._queue = queue
        self._out = out
        self._answers = answers
        self._patience = patience
        self._wall = wall
        self._prologue_sent = False
        self._prompt_tokens = 0
        self._progress = Progress()
        self._stopping: FinishReason | None = None
        """Set once the answer is not to go on; the engine's End is only awaited for its usage."""
        self._ended = False
        self._parked_end: End | None = None
        """An End(cancelled) that came before we knew whether the request or only an attempt was cancelled."""
        self._last_words: asyncio.TimerHandle | None = None
        self._successor: int | None = None
        """The attempt of another engine that took the request and has not begun: earlier ones are over."""
        self.tally = Tally()

    async def run(self) -> None:
        """Returns when the edge has its End or Error, or nobody wants one any more."""
        try:
            while not self._ended:
                frame = await self._next()
                if frame is None:
                    continue
                taken = time.perf_counter()
                self.tally.started = self.tally.started or self._wall()
                await self._pass_on(frame)
                self.tally.note(time.perf_counter() - taken)
        finally:
            self._ended = True
            self._disarm()

    # -- what others tell us, from callbacks ------------------------------------------------------------

    async def on_cancel(self, cancel: Cancel) -> int | None:
        """A whole request cancelled: no more text, and the engine's last word is awaited for a while."""
        if cancel.attempt is None and self._stopping is None and not self._ended:
            self._stopping = "cancelled"
            self._arm(self._patience.cancel, "client_closed_request", "The request was cancelled.")
            if self._parked_end:
                self._queue.put(self._parked_end)
        return None

    def gateway_lost(self, instance: str) -> None:
        text = f"The gateway {instance} vanished while the answer was on its way. Try again."
        self._put_final(ErrorBody(code="stop_lost", message=text, stop="llm_gateway"))

    def _arm(self, seconds: float, code: ErrorCode, message: str) -> None:
        """Unless something better comes within `seconds`, the request ends with this error."""
        self._disarm()
        error = ErrorBody(code=code, message=message, stop="output_guardrails")
        self._last_words = asyncio.get_running_loop().call_later(seconds, self._put_final, error)

    def _disarm(self) -> None:
        if self._last_words:
            self._last_words.cancel()
            self._last_words = None

    def _put_final(self, error: ErrorBody) -> None:
        """Into our own queue, so that `run` is the only one who acts."""
        frame = Error(request_id=self._out.request_id, sender=self._out.sender, error=error)
        self._queue.put(frame)

    # -- frames -----------------------------------------------------------------------------------------

    async def _next(self) -> AnyFrame | None:
        try:
            return await self._queue.get(self._patience.stall)
        except QueueOverflow:
            text = "output_guardrails could not keep up with the engine."
            await self._break_off(ErrorBody(code="slow_consumer", message=text, stop="output_guardrails"))
        except StreamBroken as broken:
            if not broken.lost:
                text = f"Frames of {broken.sender} are missing and can't be had again. Try again."
                await self._break_off(ErrorBody(code="stream_gap", message=text, stop="engine_worker"))
            elif self._last_words is None and self._successor is None:
                text = f"{broken.sender} vanished while it was answering. Try again."
                self._arm(self._patience.takeover, "stop_lost", text)
        return None

    async def _pass_on(self, frame: AnyFrame) -> None:
        match frame:
            case Prologue():
                await self._on_prologue(frame)
            case Data():
                await self._on_data(frame)
            case End():
                await self._on_end(frame)
            case Error():
                await self._on_error(frame)
            case Held():
                self._on_successor(frame)

    def _on_successor(self, frame: Held) -> None:
        if frame.attempt in self.tally.attempts:
            return  # its prologue came by the shorter way, and says more
        self._successor = frame.attempt
        if self._stopping is None:
            self._disarm()
            self._parked_end = None

    async def _on_prologue(self, frame: Prologue) -> None:
        if self._successor is not None and frame.attempt >= self._successor:
            self._successor = None  # else one that was given up has begun all the same
        self.tally.attempts.add(frame.attempt)
        self._prompt_tokens = frame.prompt_tokens or 0
        try:
            self._progress.begin(frame)
        except DoesNotFit as problem:
            await self._does_not_fit(problem)
            return
        if self._stopping is None:
            self._disarm()  # somebody goes on
            self._parked_end = None
        if not self._prologue_sent:
            self._prologue_sent = True
            self._answers.begin(frame)
            if frame.attempt != self._out.attempt:
                frame = frame.model_copy(update={"begun_by": frame.attempt})
            await self._out.send(frame)

    async def _on_data(self, frame: Data) -> None:
        """One frame in, one out, even if its text is held back: the edge sees that we live. `token_ids` stay
        here, unjudged as they are; those that a client wants come as `tokens`."""
        if self._stopping:
            return
        try:
            if not self._progress.is_new(frame):
                return
        except DoesNotFit as problem:
            await self._does_not_fit(problem)
            return
        self.tally.completion_tokens += len(frame.token_ids)
        await self._send(frame.index, self._answers.push(frame))
        if self._answers.blocked:
            self._stopping = "content_filter"
            await self._cancel("content_filter")
            self._arm(self._patience.cancel, "content_filter", "The answer was stopped by an output rule.")
        elif ended := self._answers.early_end(frame):
            await self._send(frame.index, *ended)

    async def _on_end(self, frame: End) -> None:
        if frame.finish_reason == "cancelled" and self._stopping is None:
            if self._successor is not None:
                return
            # An attempt that the gateway gave up; or a cancel that has not reached us yet.
            text = f"{frame.sender} was told to stop, and no other attempt followed."
            self._arm(self._patience.takeover, "stop_lost", text)
            self._parked_end = frame.model_copy(update={"seq": -1})
            return
        if self._stopping is None:
            for index, rest in self._answers.finish(frame.reasons):
                await self._send(index, rest)
            reasons = self._answers.reasons(frame.reasons)
        else:
            reasons = (self._stopping,) * len(frame.reasons)
        several = reasons if frame.finish_reasons else ()
        await self._end(frame.model_copy(update={"finish_reason": reasons[0], "finish_reasons": several}))

    async def _on_error(self, frame: Error) -> None:
        if not frame.final:
            return  # an engine's: the gateway may try again
        if self._stopping == "content_filter":
            # Our time for the engine's last word is over: usage as far as seen.
            usage = frame.usage or Usage(
                prompt_tokens=self._prompt_tokens, completion_tokens=self.tally.completion_tokens
            )
            await self._end(
                End(
                    request_id=frame.request_id,
                    sender=frame.sender,
                    seq=0,
                    finish_reason="content_filter",
                    usage=usage,
                )
            )
        elif frame.sender == self._out.sender and self._stopping is None:
            await self._break_off(frame.error)
        else:
            self._ended = True
            await self._out.send(frame)

    async def _send(self, index: int, passed: Passed, finish_reason: FinishReason | None = None) -> None:
        told = {name: part for name, part in zip(passed._fields, passed, strict=True) if part}
        out = self._out
        frame = Data(
            request_id=out.request_id,
            sender=out.sender,
            seq=0,
            index=index,
            finish_reason=finish_reason,
            **told,  # pyright: ignore[reportArgumentType]  # checked by pydantic
        )
        await out.send(frame)

    async def _end(self, frame: End) -> None:
        self._ended = True
        await self._out.send(frame)

    async def _does_not_fit(self, problem: DoesNotFit) -> None:
        text = f"Another replica went on with the answer, but {problem}. Try again."
        await self._break_off(ErrorBody(code="stream_gap", message=text, stop="engine_worker"))

    async def _break_off(self, error: ErrorBody) -> None:
        """An error that only we know of: the edge gets it, everybody else is told to stop."""
        self._ended = True
        await self._out.send(Error(request_id=self._out.request_id, sender=self._out.sender, error=error))
        await self._cancel("lease_lost" if error.code == "stop_lost" else "stream_broken")

    async def _cancel(self, reason: str) -> None:
        await cancel_everywhere(self._bus, self._out.request_id, reason)


async def cancel_everywhere(bus: Bus, request_id: str, reason: str) -> None:
    """No acks are collected: the engine's End frame says what was freed."""
    cancel = Cancel.model_validate({"request_id": request_id, "reason": reason})
    try:
        await bus.publish(subjects.cancel(request_id), cancel.encode())
    except BusError:
        return  # the engine watches our lease
