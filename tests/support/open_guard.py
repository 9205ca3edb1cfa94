"""An output guard that forbids nothing, for tests of the stops before it."""

from __future__ import annotations

from baton_common.actor import Actor
from baton_common.bus import Bus
from baton_common.context import RequestContext
from baton_common.frame_inbox import FrameInbox
from baton_common.frame_sender import FrameOutbox
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.frames import Cancel, Data, End, Error, Prologue
from baton_contracts.handoffs import Ack, GuardOutHandoff


class OpenGuard:
    """An output guard that forbids nothing: frames in, the same frames out, numbered anew."""

    def __init__(self, node: Node, bus: Bus) -> None:
        self._node = node
        self._inbox = FrameInbox(bus, subjects.frames_of_guard(node.instance))
        self._outbox = FrameOutbox(bus, node.instance)

    async def __aenter__(self) -> None:
        await self._inbox.start()
        await self._outbox.start()
        self._node.add(
            Actor(
                self._node,
                subject=subjects.GUARD_OUT_ALL,
                message=GuardOutHandoff,
                handle=self.handle,
                stop_number=8,
                ack_by_handler=True,
            )
        )

    async def __aexit__(self, *exc: object) -> None:
        await self._inbox.stop()
        await self._outbox.stop()

    async def handle(self, ctx: RequestContext, handoff: GuardOutHandoff) -> None:
        del handoff

        queue = self._inbox.open(ctx.request_id)
        parked: list[End] = []
        """Of attempts that were given up; or the cancel of the request has not come yet."""
        cancelled = False

        async def on_cancel(cancel: Cancel) -> None:
            nonlocal cancelled
            cancelled = (
                cancelled or cancel.attempt is None
            )  # the engine's or the gateway's last frame ends it
            if cancelled and parked:
                queue.put(parked[-1].model_copy(update={"seq": -1}))

        ctx.on_cancel = on_cancel
        out = self._outbox.open(subjects.reply(ctx.envelope.edge, ctx.request_id), ctx.request_id, 1)
        ctx.acknowledge(Ack(verdict="held", instance=ctx.node.instance))
        seen_prologue = False
        try:
            while True:
                frame = await queue.get(60)
                match frame:
                    case Prologue():
                        if not seen_prologue:
                            await out.send(frame)
                        seen_prologue = True
                    case Data():
                        await out.send(frame)
                    case End(finish_reason="cancelled") if not cancelled:
                        parked.append(frame)
                    case End():
                        await out.send(frame)
                        return
                    case Error(final=True):
                        await out.send(frame)
                        return
                    case _:
                        pass
        finally:
            queue.close()
            self._outbox.ended(out)
