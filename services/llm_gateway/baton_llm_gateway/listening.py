"""Listening to one attempt until it is over: the engine's frames, silence, gaps, and what we tell ourselves.

Everything comes through one queue, in order: the frames as they are, and our own notes (the client left, the
replica or the guard was lost) as Error frames from ourselves. Does not know what follows a failure.
"""

from __future__ import annotations

import asyncio
import logging
import math

from baton_common.errors import StreamBroken
from baton_common.frame_inbox import AnyFrame, FrameQueue, QueueOverflow
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, Error, Prologue
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.cancellation import Cancellation

log = logging.getLogger(__name__)

LAST_WORD_SECONDS = 2.0
"""How long a cancelled engine may take to say what it had used."""
PROBE_SECONDS = 1.0
"""A replica silent for this long is asked whether we missed something; one that is gone is found so."""
BEGINS_SECONDS = 0.5
"""How long a replica that may have taken an attempt is waited for, once we are told that nobody knows."""
CANCELLED = ErrorBody(code="client_closed_request", message="The request was cancelled.", stop="llm_gateway")


def replica_lost(replica: str) -> ErrorBody:
    return ErrorBody(code="stop_lost", message=f"Replica {replica} is gone.", stop="engine_worker")


def guard_lost(instance: str) -> ErrorBody:
    text = f"{instance}, which filtered the answer, is gone."
    return ErrorBody(code="stop_lost", message=text, stop="output_guardrails")


class Listener:
    """`queue` stays its owner's; `ourselves` is the instance that notes are signed with."""

    def __init__(
        self,
        queue: FrameQueue,
        cancellation: Cancellation,
        *,
        request_id: str,
        ourselves: str,
        stall_seconds: float,
    ) -> None:
        self._queue = queue
        self._cancellation = cancellation
        self._request_id = request_id
        self._ourselves = ourselves
        self._stall_seconds = stall_seconds

    def note(self, error: ErrorBody, attempt: int = 1) -> None:
        """Heard after the frames that came before it. `attempt` matters for a lost replica only."""
        self._queue.put(
            Error(request_id=self._request_id, attempt=attempt, sender=self._ourselves, error=error)
        )

    async def begun_by(self, attempt: Attempt) -> str | None:
        """The replica of which frames of this attempt have arrived, before anybody listened to them, or come
        in a moment: a bus that stood still delivers at once what waited, and in no order."""
        give_up_at = asyncio.get_running_loop().time() + BEGINS_SECONDS
        while (replica := self.sender_of(attempt)) is None:
            rest = give_up_at - asyncio.get_running_loop().time()
            if rest <= 0 or not await self._queue.grows(rest):
                return None
        return replica

    def sender_of(self, attempt: Attempt) -> str | None:
        """The replica of which frames of this attempt have arrived, before anybody listened to them."""
        return next(
            (
                frame.sender
                for frame in self._queue.untaken()
                if frame.attempt == attempt.number and frame.sender != self._ourselves
            ),
            None,
        )

    async def until_over(self, attempt: Attempt) -> None:
        """A cancel does not end it: the engine's own last word does, with what was used; or its silence."""
        loop = asyncio.get_running_loop()
        last_word_by = 0.0
        while not attempt.over:
            if self._cancellation.is_set and not last_word_by:
                last_word_by = loop.time() + LAST_WORD_SECONDS
            # Before the first token silence is waiting, and bounded by the deadline.
            stalls_at = loop.time() + self._stall_seconds if attempt.has_begun else math.inf
            try:
                frame = await self._queue.get(PROBE_SECONDS, by=last_word_by or stalls_at)
            except TimeoutError:
                self._hear_silence(attempt)
            except StreamBroken as broken:
                self._hear_break(attempt, broken)
            else:
                self._hear(attempt, frame)

    async def last_word(self, attempt: Attempt) -> None:
        """Bounded: for an attempt that we give up ourselves."""
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                while not attempt.over:
                    self._hear(attempt, await self._queue.get())
        except (TimeoutError, StreamBroken) as error:
            log.warning("no last word of %s: %s", attempt.replica, error or "silence")

    def _hear(self, attempt: Attempt, frame: AnyFrame) -> None:
        if isinstance(frame, Error) and frame.sender == self._ourselves:
            self._hear_ourselves(attempt, frame)
            return
        if (frame.sender, frame.attempt) != (attempt.replica, attempt.number):
            return  # a late word of an attempt that was given up
        match frame:
            case Data():
                attempt.add(frame)
            case Prologue():
                attempt.prompt_tokens = frame.prompt_tokens or 0
            case End():
                attempt.end(frame)
            case Error():
                attempt.fail(frame.error, frame.usage)
            case _:
                pass

    def _hear_ourselves(self, attempt: Attempt, note: Error) -> None:
        """A lost replica concerns its own attempt only, a lost guard all of them; a cancel is waited out."""
        if note.error.stop == "engine_worker" and note.attempt != attempt.number:
            return
        if note.error.code != "client_closed_request":
            attempt.fail(note.error)

    def _hear_silence(self, attempt: Attempt) -> None:
        if self._cancellation.is_set:
            attempt.cancel()
            return
        seconds = self._stall_seconds
        text = f"Replica {attempt.replica} sent nothing for {seconds:g} s in the middle of the answer."
        attempt.fail(ErrorBody(code="upstream_error", message=text, stop="engine_worker"))

    def _hear_break(self, attempt: Attempt, broken: StreamBroken) -> None:
        if broken.sender != attempt.replica and not isinstance(broken, QueueOverflow):
            return  # the replica of an earlier attempt
        if self._cancellation.is_set:
            attempt.cancel()
        elif broken.lost:
            attempt.fail(replica_lost(broken.sender))
        else:
            text = f"Frames of the answer are missing: {broken}."
            attempt.fail(ErrorBody(code="stream_gap", message=text, stop="engine_worker"))
