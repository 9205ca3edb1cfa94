"""What may end a request from outside: a client that leaves, a stop that dies, time that runs out.

`Interruption` stops a block of code from any callback, as `asyncio.timeout` does from a timer. `Watchdog` is
the one timer of a request. Neither knows what the request does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from baton_contracts.errors import ErrorBody

CancelReason = Literal["client_disconnected", "deadline", "slow_consumer", "lease_lost"]


_AGAIN_SECONDS = 0.05


@dataclass(frozen=True)
class Interrupt:
    error: ErrorBody
    cancel: CancelReason
    """What the rest of the relay is told."""


class Interrupted(Exception):
    def __init__(self, interrupt: Interrupt) -> None:
        super().__init__(interrupt.error.code)
        self.interrupt = interrupt


class Interruption:
    """`async with` it; the first `trip` from elsewhere makes the block raise Interrupted."""

    def __init__(self) -> None:
        self._tripped: Interrupt | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._num_cancels = 0
        self._again: asyncio.TimerHandle | None = None

    def trip(self, interrupt: Interrupt) -> None:
        if self._tripped is None:
            self._tripped = interrupt
            self._cancel()

    def _cancel(self) -> None:
        """Until the block has ended: Python 3.11's `asyncio.wait_for` swallows a cancel that comes together
        with what it waits for."""
        if self._task:
            self._num_cancels += 1
            self._task.cancel()
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._cancel)

    async def __aenter__(self) -> None:
        if self._tripped:
            raise Interrupted(self._tripped)
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._again:
            self._again.cancel()
        if task is None or self._tripped is None:
            return
        for _ in range(self._num_cancels):
            task.uncancel()
        if task.cancelling() <= self._cancelling and kind is asyncio.CancelledError:
            raise Interrupted(self._tripped) from error


@dataclass(frozen=True)
class Patience:
    """All in seconds."""

    keep_alive: float
    idle: float
    write: float
    total: float


class Watchdog:
    """Fires when the relay is silent, the client takes nothing, or the deadline passes. The path of a token
    only stores times; one timer looks at them now and then."""

    def __init__(
        self,
        patience: Patience,
        trip: Callable[[Interrupt], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._patience = patience
        self._trip = trip
        self._loop = loop or asyncio.get_running_loop()
        now = self._loop.time()
        self._deadline = now + patience.total
        self.last_frame = now
        self.last_write = now
        self.writing_since: float | None = None
        self.ping: Callable[[], None] | None = None
        """Called after a silence, once a stream has begun."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_at(self._next_look(self._loop.time()), self._look)

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()

    def streams(self, ping: Callable[[], None]) -> None:
        self.ping = ping
        self.stop()
        self.start()

    def _next_look(self, now: float) -> float:
        patience = self._patience
        due = min(self._deadline, now + patience.write, self.last_frame + patience.idle)
        if self.writing_since is not None:
            due = min(self._deadline, self.writing_since + patience.write)
        elif self.ping:
            due = min(due, self.last_write + patience.keep_alive)
        return max(due, now + 0.001)

    def _look(self) -> None:
        now = self._loop.time()
        if found := self._find(now):
            self._trip(found)
            return
        if self.ping and self.writing_since is None and now - self.last_write >= self._patience.keep_alive:
            self.last_write = now
            self.ping()
        self._timer = self._loop.call_at(self._next_look(now), self._look)

    def _find(self, now: float) -> Interrupt | None:
        patience = self._patience
        if now >= self._deadline:
            text = f"The answer was not complete within {patience.total:g} s."
            return Interrupt(ErrorBody(code="deadline_exceeded", message=text), "deadline")
        if self.writing_since is not None:
            if now - self.writing_since < patience.write:
                return None
            text = f"The client took nothing for {patience.write:g} s."
            return Interrupt(ErrorBody(code="slow_consumer", message=text), "slow_consumer")
        if now - self.last_frame >= patience.idle:
            text = f"Nothing came from the relay for {patience.idle:g} s."
            return Interrupt(ErrorBody(code="idle_timeout", message=text), "deadline")
        return None
