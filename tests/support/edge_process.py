"""An edge in the test's own event loop: real HTTP on a free port, and a scripted relay on the other side."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from baton_common.bus import BusMessage
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_common.leases import LeaseBoard, OnLost
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Cancel, CancelAck, Data, End, Error, Held, Prologue, Usage, encode_frame
from baton_contracts.handoffs import Ack, PromptHandoff
from baton_contracts.identifiers import new_instance_id
from baton_edge_api import wiring as edge_wiring
from baton_edge_api.limits.wiring import Limits
from baton_edge_api.server import listen
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.wiring import wire
from tests.support.books import make_after_stream
from tests.support.waiting import eventually

KEY = "sk-test-key-0001"
QUESTION: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "Hello?"}]}


@dataclass
class Turn:
    """One request as the scripted relay holds it."""

    relay: FakeRelay
    handoff: PromptHandoff
    stream: FrameStream
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def request_id(self) -> str:
        return self.handoff.envelope.request_id

    async def held(self, stop: str, instance: str) -> None:
        note = Held(request_id=self.request_id, sender=instance, stop=stop)  # type: ignore[arg-type]
        await self.relay.bus.publish(self.stream.subject, encode_frame(note))

    async def prologue(self, **changes: Any) -> None:
        values = {"model": "smollm2-135m", "replica": "engine_worker-1"}
        values |= {"gateway": self.relay.instance, "guard": self.relay.instance} | changes
        await self.stream.send(Prologue(request_id=self.request_id, sender="x", seq=0, **values))

    async def data(self, text: str = "", **more: Any) -> None:
        frame = Data(request_id=self.request_id, sender="x", seq=0, text=text, token_ids=(1,), **more)
        await self.stream.send(frame)

    async def end(self, reason: str = "stop", **usage: int) -> None:
        counts = Usage(**({"prompt_tokens": 5, "completion_tokens": 3, "cached_tokens": 2} | usage))
        frame = End(
            request_id=self.request_id,
            sender="x",
            seq=0,
            finish_reason=reason,  # type: ignore[arg-type]
            usage=counts,
            blocks_freed=4,
        )
        await self.stream.send(frame)

    async def error(self, error: ErrorBody) -> None:
        frame = Error(request_id=self.request_id, sender=self.relay.instance, error=error)
        await self.relay.bus.publish(self.stream.subject, encode_frame(frame))


Script = Callable[[Turn], Awaitable[None]]


async def hello(turn: Turn) -> None:
    """The answer of most tests: three pieces."""
    await turn.prologue()
    for piece in ("Hel", "lo", " ☃!"):
        await turn.data(piece)
    await turn.end()


class FakeRelay:
    """All stops between the edge and the edge, in one: takes the handoff and plays a script."""

    def __init__(self, bus: NatsBus, script: Script) -> None:
        self.bus = bus
        self.script = script
        self.node = Node(bus, "prompt_builder")
        self.instance = self.node.instance
        self.outbox = FrameOutbox(bus, self.instance, None, self.node.last_words)
        self.turns: list[Turn] = []
        self._turn_came = asyncio.Event()
        self.cancels: asyncio.Queue[Cancel] = asyncio.Queue()
        self.records: dict[str, list[bytes]] = {}
        self.traces: asyncio.Queue[bytes] = asyncio.Queue()
        self.ack_cancels = True
        self.hold_scripts = False
        """At the end of the test scripts are not told to end."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self.node.start()
        await self.node.become_ready()
        await self.outbox.start()
        self._prompts = await self.bus.subscribe(subjects.PROMPT_ALL, self._on_prompt, queue="prompt_builder")
        await self.bus.subscribe(subjects.CANCEL_ALL, self._on_cancel)
        await self.bus.subscribe(subjects.TRACE_ALL, lambda message: self.traces.put_nowait(message.payload))
        await self.bus.subscribe(subjects.AFTER_ALL, self._on_record)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_prompt(self, message: BusMessage) -> None:
        handoff = PromptHandoff.decode(message.payload)
        envelope = handoff.envelope
        subject = subjects.reply(envelope.edge, envelope.request_id)
        turn = Turn(self, handoff, self.outbox.open(subject, envelope.request_id, 1))
        self.turns.append(turn)
        self._turn_came.set()
        self._spawn(self._play(turn, message.reply, self.script))

    async def _play(self, turn: Turn, reply: str, script: Script) -> None:
        """`script` is the one at the turn's arrival: a test that saw it arrive may set the next one."""
        await self.bus.publish(reply, Ack(verdict="held", instance=self.instance).encode())
        await script(turn)

    def _on_cancel(self, message: BusMessage) -> None:
        cancel = Cancel.decode(message.payload)
        self.cancels.put_nowait(cancel)
        for turn in self.turns:
            if turn.request_id == cancel.request_id:
                turn.cancelled.set()
        if self.ack_cancels and message.reply:
            ack = CancelAck(stop="engine_worker", instance="engine_worker-1", blocks_freed=7)
            self._spawn(self.bus.publish(message.reply, ack.encode()))

    def _on_record(self, message: BusMessage) -> None:
        self.records.setdefault(message.subject.split(".")[3], []).append(message.payload)

    async def took(self, count: int = 1) -> None:
        """Returns when so many requests have come in all."""
        async with asyncio.timeout(20):
            while len(self.turns) < count:
                self._turn_came.clear()
                await self._turn_came.wait()

    async def record(self, kind: str) -> bytes:
        """The only one of its kind: what the edge has stored comes over a connection of its own."""
        await eventually(lambda: kind in self.records)
        (record,) = self.records[kind]
        return record

    async def idle(self) -> None:
        """Returns when no script plays."""
        async with asyncio.timeout(20):
            while self._tasks:
                await asyncio.wait(set(self._tasks))

    async def unsubscribe_prompt(self) -> None:
        """From here on nobody takes a request."""
        await self._prompts.unsubscribe()
        await self.bus.subscribe(f"sync.{self.instance}", lambda _: None)

    async def spans(self) -> list[dict[str, Any]]:
        """Of the next request that is over."""
        batch = json.loads(await asyncio.wait_for(self.traces.get(), 20))
        return sorted(batch["spans"], key=lambda span: span["start"])

    def release(self) -> None:
        """Scripts that wait to be cancelled go on."""
        for turn in self.turns:
            turn.cancelled.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.node.stop()
        await self.bus.close()


class Watches:
    """Whose lease the edge has begun to watch: from then on it knows that this process holds the request."""

    def __init__(self, board: LeaseBoard) -> None:
        self._board = board
        self._watch = board.watch
        self._changed = asyncio.Event()
        board.watch = self._note  # type: ignore[method-assign]

    def _note(self, instance: str, on_lost: OnLost, on_closed: OnLost | None = None) -> Callable[[], None]:
        self._changed.set()
        return self._watch(instance, on_lost, on_closed)

    async def begun(self, instance: str) -> None:
        async with asyncio.timeout(20):
            while not ((peer := self._board._peers.get(instance)) and peer.watchers):
                self._changed.clear()
                await self._changed.wait()


@dataclass
class RunningEdge:
    url: str
    port: int
    node: Node
    bus: NatsBus
    relay: FakeRelay
    watches: Watches
    limits: Limits

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {KEY}"}

    async def finished(self) -> None:
        """Returns when it holds no request."""
        async with asyncio.timeout(20):
            for inbox in self.node._actors:
                await inbox.finished()


@contextlib.asynccontextmanager
async def running_edge(
    nats_url: str, script: Script = hello, *, drain_for: float = 5, **settings: Any
) -> AsyncGenerator[RunningEdge, None]:
    """`settings` are those of the edge."""
    values: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "dev_key": KEY,
        "max_handoff_bytes": 1_000_000,
        "record_seconds": 5.0,
    } | settings
    edge_settings = EdgeSettings(**values)
    relay = FakeRelay(await NatsBus.connect(nats_url, name="relay"), script)
    await make_after_stream(relay.bus)
    await relay.start()
    bus = await NatsBus.connect(nats_url, name="edge")
    node = Node(bus, "edge_api")
    watches = Watches(node.leases)
    stack = contextlib.AsyncExitStack()
    limits: list[Limits] = []

    def noted(*args: Any) -> Limits:
        limits.append(Limits(*args))
        return limits[-1]

    sock = listen(edge_settings)
    port = sock.getsockname()[1]
    try:
        await node.start()
        with patch.object(edge_wiring, "Limits", noted):
            running = wire(edge_settings, sock)(node, bus)
            await stack.enter_async_context(running)
        async with stack:
            await node.become_ready()
            try:
                yield RunningEdge(f"http://127.0.0.1:{port}", port, node, bus, relay, watches, limits[0])
            finally:
                if not relay.hold_scripts:
                    relay.release()
                await node.drain(drain_for)
    finally:
        await node.stop()
        await bus.close()
        await relay.stop()


def instance_of(service: str) -> str:
    return new_instance_id(service)
