"""One request on the relay, as the edge sees it: handed on, answered by frames, watched, cancelled.

Owns the question "who holds it now, and is that process alive". Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from baton_common.cancels import broadcast_cancel
from baton_common.errors import BusError, RequestFailed, StreamBroken
from baton_common.frame_inbox import AnyFrame, FrameQueue, QueueOverflow
from baton_common.handoff import hand_on
from baton_common.node import Node
from baton_common.recent_ends import RecentEnds
from baton_contracts import subjects
from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Cancel, Data, End, Error, Held, Prologue, Usage
from baton_contracts.handoffs import GatewayHandoff, Handoff, PromptHandoff
from baton_contracts.prompt import ChatRequest, Prompt
from baton_contracts.subjects import Service
from baton_edge_api.interruption import CancelReason, Interrupt, Interrupted
from baton_edge_api.unbooked import record_of

_ORDER: tuple[Service, ...] = ("prompt_builder", "input_guardrails", "llm_gateway")
"""Stops that say "I hold it now" before an answer begins, in the order of the relay."""


@dataclass
class CancelOutcome:
    num_acks: int = 0
    blocks_freed: int | None = None
    """KV blocks that the engine gave back; None if no engine said so."""


class Call(Protocol):
    """One answer on its way, be it made of one request on the relay or of several."""

    prologue: Prologue | None

    @property
    def over(self) -> bool: ...

    @property
    def beginning(self) -> Prologue | None:
        """Of the first that has begun: of several there may be one before there is a `prologue` of all."""
        ...

    async def hand_on(self, chat: ChatRequest, max_bytes: int) -> str: ...

    async def begin(self) -> Prologue: ...

    async def next(self) -> Data | End: ...

    async def cancel(self, reason: CancelReason) -> CancelOutcome: ...

    async def last_frame(self, seconds: float) -> End | None: ...

    def charged(self, used: Usage) -> Usage:
        """What of it costs money: what came from a cache doesn't."""
        ...

    @property
    def has_ended(self) -> bool:
        """All that it used was told with its end."""
        ...

    @property
    def uncounted(self) -> float:
        """Where some prompts were counted by the engine: the part of all that was asked and never was."""
        ...

    def close(self) -> None: ...


class RelayCall:
    """`plain`: straight to the LLM gateway, and straight back."""

    def __init__(
        self,
        node: Node,
        queue: FrameQueue,
        envelope: Envelope,
        trip: Callable[[Interrupt], None],
        ends: RecentEnds,
        *,
        plain: bool = False,
    ) -> None:
        self._first: Service = "llm_gateway" if plain else "prompt_builder"
        self._plain = plain
        self._node = node
        self._queue = queue
        self._queue.run_id = envelope.run_id
        self._envelope = envelope
        self._trip = trip
        self._ends = ends
        self._num_tokens = 0
        self._num_pieces = 0
        self._end: End | None = None
        self._unwatch: list[Callable[[], None]] = []
        self._held_by = -1
        self.prologue: Prologue | None = None
        self.was_handed_on = False
        """Somebody may hold it: then a cancel is not in vain."""
        self.over = False
        """True once the relay has said its last word on this request, or never got it."""

    @property
    def beginning(self) -> Prologue | None:
        return self.prologue

    async def hand_on(self, chat: ChatRequest, max_bytes: int) -> str:
        """Returns the instance that took it. Raises RequestFailed: nobody is there, nobody takes it, or it is
        too large for the bus."""
        envelope, clock = self._envelope, self._node.clock

        def encode() -> bytes:
            sent = envelope.model_copy(update={"sent_at": clock.wall()})
            payload = self._handoff(sent, chat).encode()
            if len(payload) > max_bytes:
                text = f"The request takes {len(payload)} bytes on the bus; {max_bytes} fit. Send less text."
                raise RequestFailed.because("request_too_large", text, param="messages")
            return payload

        self.was_handed_on = True
        try:
            ack = await hand_on(
                self._node.bus,
                clock,
                self._first_subject,
                encode,
                to=self._first,
                deadline=envelope.deadline,
            )
        except RequestFailed as failed:
            self.over = failed.error.code != "stop_unresponsive"  # that one may still wake up and begin
            raise
        self._now_held_by(self._first, ack.instance)
        return ack.instance

    @property
    def _first_subject(self) -> str:
        request_id = self._envelope.request_id
        return subjects.gateway(request_id) if self._plain else subjects.prompt(request_id)

    def _handoff(self, envelope: Envelope, chat: ChatRequest) -> Handoff:
        if not self._plain:
            return PromptHandoff(envelope=envelope, chat=chat)
        prompt = Prompt(
            messages=chat.messages,
            tools=chat.tools,
            template_variables=chat.template_variables,
            rendering=chat.rendering,
            token_ids=chat.token_ids,
            add_special_tokens=chat.add_special_tokens,
        )
        return GatewayHandoff(envelope=envelope, chat=chat, prompt=prompt, plain=True)

    async def begin(self) -> Prologue:
        """Waits until an engine (or the cache) answers. Raises RequestFailed or Interrupted."""
        while True:
            frame = await self._next()
            if isinstance(frame, Prologue):
                self.prologue = frame
                holders: list[tuple[Service, str]] = [("llm_gateway", frame.gateway)]
                if not self._plain:
                    holders.append(("output_guardrails", frame.guard))
                self._watch(*holders)
                return frame
            if isinstance(frame, Held):
                self._now_held_by(frame.stop, frame.sender)
            else:
                text = "An answer came without its beginning."
                raise Interrupted(Interrupt(ErrorBody(code="upstream_error", message=text), "lease_lost"))

    async def next(self) -> Data | End:
        """The next piece of the answer. Raises RequestFailed or Interrupted."""
        while True:
            frame = await self._next()
            if isinstance(frame, Data):
                self._num_tokens += len(frame.token_ids)
                self._num_pieces += frame.says_something
                return frame
            if isinstance(frame, End):
                self._end = frame
                self.over = True
                self._stop_watching()  # all has been said: whoever leaves now may
                return frame

    async def _next(self) -> AnyFrame:
        try:
            frame = await self._queue.get()
        except StreamBroken as broken:
            raise Interrupted(self._broken(broken)) from broken
        if isinstance(frame, Error):
            self.over = not _may_still_begin(frame)
            raise RequestFailed(frame.error)
        return frame

    def _broken(self, broken: StreamBroken) -> Interrupt:
        if isinstance(broken, QueueOverflow):
            text = "The client is too slow for its answer."
            return Interrupt(ErrorBody(code="slow_consumer", message=text), "slow_consumer")
        if broken.lost:
            return self._lost("output_guardrails")
        text = "A part of the answer was lost on the way and could not be had again."
        error = ErrorBody(code="stream_gap", message=text, stop="output_guardrails")
        return Interrupt(error, "lease_lost")

    def _lost(self, stop: Service) -> Interrupt:
        text = f"{stop} was lost while it held the request. Try again."
        return Interrupt(ErrorBody(code="stop_lost", message=text, stop=stop), "lease_lost")

    def _now_held_by(self, stop: Service, instance: str) -> None:
        place = _ORDER.index(stop) if stop in _ORDER else -1
        if place > self._held_by and self.prologue is None:
            self._held_by = place
            self._watch((stop, instance))

    def _watch(self, *holders: tuple[Service, str]) -> None:
        """Watches these and no others. One that left with its books closed had nothing to tell any more."""
        self._stop_watching()
        for stop, instance in holders:
            interrupt = self._lost(stop)
            self._unwatch.append(
                self._node.leases.watch(
                    instance, lambda _, found=interrupt: self._trip(found), on_closed=lambda _: None
                )
            )

    def _stop_watching(self) -> None:
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()

    async def cancel(self, reason: CancelReason) -> CancelOutcome:
        """Tells whoever holds a part. Asked again while nobody who runs it has answered: a cancel may
        overtake the handoff that it is meant for."""
        outcome = CancelOutcome()
        cancel = Cancel(request_id=self._envelope.request_id, reason=reason, run_id=self._envelope.run_id)
        enough = 1 if self._plain else 3
        cached = self.prologue is not None and self.prologue.cache != "none"
        for _ in range(1 if cached else 3):
            try:
                acks = await broadcast_cancel(self._node.bus, cancel, timeout=0.7, enough=enough)
            except BusError as error:
                self._node.log.warning("cancel of %s not sent: %s", cancel.request_id, error)
                break
            outcome.num_acks += len(acks)
            freed = [ack.blocks_freed for ack in acks if ack.blocks_freed is not None]
            if freed:
                outcome.blocks_freed = sum(freed)
                break
            if outcome.num_acks and self.prologue is None and not acks:
                break  # the one that held it has stopped, and nobody else took it
        return outcome

    async def last_frame(self, seconds: float) -> End | None:
        """After a cancel: the end that the guard passes on, with what was used until then."""
        try:
            async with asyncio.timeout(seconds):
                while not isinstance(frame := await self._queue.get(), End | Error):
                    pass
        except (TimeoutError, StreamBroken):
            return None
        if not isinstance(frame, End):
            return None
        self._end = frame
        return frame

    def charged(self, used: Usage) -> Usage:
        return Usage() if self.prologue is not None and self.prologue.costs_nothing else used

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    @property
    def uncounted(self) -> float:
        return 0.0

    def close(self) -> None:
        self._stop_watching()
        self._queue.close()
        if prologue := self.prologue:
            now = self._node.clock.wall()
            heard = self._num_tokens or self._num_pieces
            record = record_of(self._envelope, prologue, self._end, heard, now)
            self._ends.note(prologue.gateway, record)


def _may_still_begin(told: Error) -> bool:
    """Somebody handed the request to a stop that did not take it in time: when that one wakes up, it finds
    the request in its inbox and begins. One that says so of itself has ended it."""
    stop = told.error.stop
    return told.error.code == "stop_unresponsive" and not told.sender.startswith(f"{stop}-")
