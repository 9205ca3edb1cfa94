"""Identical requests under way at the same time are one call: the first makes it, the others follow.

A follower has its own guard and its own stream, and gets what the leader got from the start. A leader whose
client left goes on while anyone follows, where the call is its own (another server's); else a follower that
has sent nothing yet makes the call itself. Only for tenants that want it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import SHARED, Data, End, Error, Prologue, Usage
from baton_contracts.records import UsageRecord
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.cached_answer import row_without_call
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.listening import CANCELLED, guard_lost
from baton_llm_gateway.telling import way_out


@dataclass
class Flight:
    """One call, as far as it has come. Written by its leader, read by its followers."""

    model: str = ""
    frames: list[Data] = field(default_factory=list[Data])
    last: Attempt | None = None
    is_over: bool = False
    on_empty: Callable[[], None] | None = None
    """The leader's: nobody follows any more."""
    _followers: set[asyncio.Event] = field(default_factory=set[asyncio.Event])

    @property
    def num_followers(self) -> int:
        return len(self._followers)

    def add(self, model: str, frame: Data) -> None:
        self.model = model
        self.frames.append(frame)
        self._tell()

    def end(self, last: Attempt | None) -> None:
        self.last, self.is_over = last, True
        if last:
            self.model = last.model
        self._tell()

    def join(self, follower: asyncio.Event) -> None:
        self._followers.add(follower)

    def leave(self, follower: asyncio.Event) -> None:
        self._followers.discard(follower)
        if self.on_empty and not self._followers:
            self.on_empty()

    def _tell(self) -> None:
        for follower in self._followers:
            follower.set()


class Flights:
    """Those of this process, by what the cache would call their answers."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def find(self, key: str) -> Flight | None:
        return self._flights.get(key)

    def begin(self, key: str) -> Flight:
        """The caller leads, and must call `end`."""
        flight = self._flights[key] = Flight()
        return flight

    def end(self, key: str, flight: Flight, last: Attempt | None) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        flight.end(last)


class Follower:
    """One request that follows a flight."""

    def __init__(
        self,
        ctx: RequestContext,
        flight: Flight,
        cancellation: Cancellation,
        outbox: FrameOutbox,
        guard: str | None,
        num_answers: int,
        citations: tuple[str, ...],
    ) -> None:
        self._ctx = ctx
        self._flight = flight
        self._cancellation = cancellation
        self._outbox = outbox
        self._guard = guard or ctx.node.instance
        self._way = way_out(ctx, guard)
        self._num_answers = num_answers
        self._citations = citations
        self._stream: FrameStream | None = None
        self._news = asyncio.Event()
        self._guard_lost = False
        self._edge_lost = False

    async def run(self) -> bool:
        """False: nothing was sent, and the call must be made after all. True: the client has its answer, or
        was told why there is none. Raises RequestFailed if our guard, the way there, is gone."""
        flight = self._flight
        flight.join(self._news)
        leases = self._ctx.node.leases
        unwatch_guard = leases.watch(self._guard, self._on_guard_lost)
        unwatch_edge = leases.watch(self._ctx.envelope.edge, self._on_edge_lost)
        self._cancellation.wake = self._news.set
        self._cancellation.holds_blocks = False
        try:
            await self._follow()
            return await self._finish()
        finally:
            unwatch_guard()
            unwatch_edge()
            flight.leave(self._news)
            self._cancellation.wake = None
            self._cancellation.holds_blocks = True
            if self._stream:
                self._outbox.ended(self._stream)

    def record(self, started_at: float) -> UsageRecord | None:
        """What the answer would have cost; it cost nothing. None: there was no answer."""
        last = self._flight.last
        if last is None or last.outcome != "finished" or self._is_given_up:
            return None
        now = self._ctx.node.clock.wall()
        return row_without_call(
            self._ctx.envelope,
            self._flight.model,
            SHARED,
            last.usage or Usage(),
            last.finish_reason,
            started_at=started_at,
            ended_at=now,
        )

    async def _follow(self) -> None:
        flight, sent = self._flight, 0
        while not self._is_given_up:
            while sent < len(flight.frames):
                stream = await self._begin()
                await stream.send(flight.frames[sent].model_copy(update={"request_id": self._ctx.request_id}))
                sent += 1
            if flight.is_over:
                return
            self._news.clear()
            if sent == len(flight.frames) and not self._is_given_up:
                await self._news.wait()

    @property
    def _is_given_up(self) -> bool:
        return self._cancellation.is_set or self._guard_lost or self._edge_lost

    def _on_guard_lost(self, instance: str) -> None:
        del instance
        self._guard_lost = True
        self._news.set()

    def _on_edge_lost(self, instance: str) -> None:
        """And its client with it: the call is not kept up for them."""
        del instance
        self._edge_lost = True
        self._news.set()

    async def _begin(self) -> FrameStream:
        if self._stream is None:
            ctx, envelope, instance = self._ctx, self._ctx.envelope, self._ctx.node.instance
            self._stream = self._outbox.open(self._way, ctx.request_id, envelope.attempt, envelope.run_id)
            await self._stream.send(
                Prologue(
                    request_id=ctx.request_id,
                    sender=instance,
                    seq=0,
                    model=self._flight.model,
                    replica=SHARED,
                    gateway=instance,
                    guard=self._guard,
                    num_answers=self._num_answers,
                    citations=self._citations,
                )
            )
        return self._stream

    async def _finish(self) -> bool:
        last = self._flight.last
        if self._cancellation.is_set or self._edge_lost:
            await self._tell(CANCELLED)
            return True
        if self._guard_lost:
            raise RequestFailed(guard_lost(self._guard))
        if last is not None and last.end_frame and last.outcome == "finished":
            stream = await self._begin()
            end: End = last.end_frame
            await stream.send(end.model_copy(update={"request_id": self._ctx.request_id, "blocks_freed": 0}))
            return True
        is_their_own = bool(last and last.error and last.error.status < 500)
        if self._stream is None and not is_their_own:
            return False
        text = "The call that this answer was shared with broke off."
        broke = ErrorBody(code="upstream_error", message=text, stop="llm_gateway")
        await self._tell((last and last.error) or broke)
        return True

    async def _tell(self, error: ErrorBody) -> None:
        frame = Error(
            request_id=self._ctx.request_id,
            attempt=self._ctx.envelope.attempt,
            sender=self._ctx.node.instance,
            error=error,
        )
        await self._ctx.tell_last(self._way, frame)
