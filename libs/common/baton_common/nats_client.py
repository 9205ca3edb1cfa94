"""nats-py's client with a shorter way for a message: out in the turn of the loop in which it is published, in
without a task of its own.

Owns which subscriptions are delivered straight from the parser, and the answers to this process's requests.
Leans on names inside nats-py 2.16 (`_flush_pending`, `_process_msg`, `_sid`); where a condition of the short
way does not hold, nats-py's own way is taken.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from baton_common.tasks import spawn

log = logging.getLogger(__name__)

MOST_UNSENT_BYTES = 256 * 1024
"""A socket with more than this before it is waited for, which nats-py's flusher does."""
_NO_RESPONDERS = b"NATS/1.0 503"

Deliver = Callable[[str, bytes, str], None]
"""Subject, payload, subject to answer on or nothing. Quick; what it raises is logged."""


class StraightClient(Client):
    def __init__(self) -> None:
        super().__init__()
        self._straight: dict[int, Deliver] = {}
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._answer_subjects = ""
        self._answers_sid = 0
        self._numbers = itertools.count(1)
        self._asking = asyncio.Lock()
        self._write_comes = False
        self._patience = 0.0
        self._latest_write: asyncio.TimerHandle | None = None

    async def publish_within(self, seconds: float, subject: str, payload: bytes, reply: str = "") -> None:
        """Like `publish`, but it may wait so long for what is published next, to share its write."""
        self._patience = seconds
        try:
            await self.publish(subject, payload, reply=reply)  # nothing else runs before it asks for a flush
        finally:
            self._patience = 0.0

    async def subscribe_straight(self, subject: str, deliver: Deliver, *, queue: str = "") -> Subscription:
        """Like `subscribe` with a callback, without its queue and its task: messages are delivered serially,
        as they are read."""
        number = self._sid + 1  # the one that `subscribe` takes, before it lets anything else run
        self._straight[number] = deliver
        try:
            return await self.subscribe(subject, queue=queue)
        except BaseException:
            self._straight.pop(number, None)
            raise

    async def ask(
        self, subject: str, payload: bytes, *, timeout: float, headers: dict[str, str] | None = None
    ) -> bytes:
        """The first answer. Raises nats.errors.NoRespondersError, TimeoutError, whatever `publish` raises."""
        if not self._answers_sid:
            await self._hear_answers()
        loop = asyncio.get_running_loop()
        inbox = f"{self._answer_subjects}{next(self._numbers)}"
        answer: asyncio.Future[bytes] = loop.create_future()
        self._answers[inbox] = answer
        timer = loop.call_later(timeout, _give_up, answer)
        try:
            await self.publish(subject, payload, reply=inbox, headers=headers)
            return await answer
        finally:
            timer.cancel()
            del self._answers[inbox]

    async def _hear_answers(self) -> None:
        async with self._asking:
            if not self._answers_sid:
                self._answer_subjects = f"{self.new_inbox()}."
                subscription = await self.subscribe(f"{self._answer_subjects}*")
                self._answers_sid = subscription._id  # pyright: ignore[reportPrivateUsage]

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._straight.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        deliver = self._straight.get(sid)
        if deliver is None and sid != self._answers_sid:
            await super()._process_msg(sid, subject, reply, data, headers)  # pyright: ignore[reportArgumentType]
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        if deliver is None:
            self._answered(subject.decode(), data, headers)
            return
        try:
            deliver(subject.decode(), data, reply.decode())
        except Exception:  # one listener's fault is not the connection's
            log.exception("callback of %s failed", subject.decode())

    def _answered(self, inbox: str, data: bytes, headers: bytes | None) -> None:
        answer = self._answers.get(inbox)
        if answer is None or answer.done():
            return  # a second one, or one that came too late
        if headers and headers.startswith(_NO_RESPONDERS):
            answer.set_exception(errors.NoRespondersError())
        else:
            answer.set_result(data)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """What one turn of the loop publishes goes to the socket in one write at its end. A socket that has
        closed is found so a moment later: until then all waits, and is sent behind the reconnect."""
        if self._is_cut_off():
            return None
        if force_flush or self._free_writer() is None:
            return await super()._flush_pending(force_flush)
        if self._write_comes:
            return None
        if self._patience:
            self._write_until(asyncio.get_running_loop().time() + self._patience)
            return None
        self._write_comes = True
        asyncio.get_running_loop().call_soon(self._write_pending)
        return None

    def _write_until(self, latest: float) -> None:
        timer = self._latest_write
        if timer and timer.when() <= latest:
            return
        if timer:
            timer.cancel()
        self._latest_write = asyncio.get_running_loop().call_at(latest, self._write_pending)

    def _write_pending(self) -> None:
        self._write_comes = False
        if self._latest_write:
            self._latest_write.cancel()
            self._latest_write = None
        if not self._pending:
            return
        writer = self._free_writer()
        if writer is None:  # the connection broke meanwhile, or the socket is full
            spawn(self._flush_pending())
            return
        pending, self._pending = self._pending, []
        self._pending_data_size = 0
        writer.writelines(pending)

    def _is_cut_off(self) -> bool:
        transport = self._transport
        writer = transport._io_writer if isinstance(transport, TcpTransport) else None  # pyright: ignore[reportPrivateUsage]
        return writer is not None and writer.is_closing()

    def _free_writer(self) -> asyncio.StreamWriter | None:
        """None: the flusher has to wait for the socket, or for a connection."""
        flusher, queue, transport = self._flusher_task, self._flush_queue, self._transport
        if not self.is_connected or flusher is None or flusher.done() or queue is None or not queue.empty():
            return None
        if not isinstance(transport, TcpTransport):
            return None
        writer = transport._io_writer  # pyright: ignore[reportPrivateUsage]
        if writer is None or writer.is_closing():
            return None
        unsent = writer.transport.get_write_buffer_size()
        return writer if unsent < MOST_UNSENT_BYTES else None


def _give_up(answer: asyncio.Future[bytes]) -> None:
    if not answer.done():
        answer.set_exception(errors.TimeoutError())
