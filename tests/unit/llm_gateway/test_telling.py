"""What a request still tells when it is over here: only its own run hears it."""

from __future__ import annotations

import asyncio

from baton_common.context import RequestContext
from baton_common.frame_inbox import FrameInbox
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_common.tracing import SpanRecorder
from baton_contracts import subjects
from baton_contracts.frames import Error
from baton_contracts.heartbeats import Lease
from baton_llm_gateway.telling import tell_if_lost
from tests.support.relay import make_envelope
from tests.support.waiting import eventually

GUARD, EDGE = "output_guardrails-1", "edge_api-1"
RUN, LATER_RUN = "00000001", "00000002"


async def heard_by(run_id: str) -> list[Error]:
    """By an edge whose request of this run has the id of one whose guard dies behind its end."""
    bus = MemoryBus()
    node = Node(bus, "llm_gateway")
    await node.leases.start()
    inbox = FrameInbox(bus, subjects.reply_all(EDGE))
    await inbox.start()
    envelope = make_envelope(edge=EDGE).model_copy(update={"run_id": RUN})
    ctx = RequestContext(node, envelope, SpanRecorder(node.service, node.instance, 5, node.clock))
    queue = inbox.open(ctx.request_id)
    queue.run_id = run_id
    said: list[bytes] = []
    await bus.subscribe(subjects.reply_all(EDGE), lambda message: said.append(message.payload))

    tell_if_lost(ctx, GUARD)
    gone = Lease(service="output_guardrails", instance=GUARD, state="gone", mailbox_depth=0)
    await bus.publish(subjects.lease(GUARD), gone.encode())
    await eventually(lambda: len(said) == 1)
    await asyncio.sleep(0)
    return [frame for frame in queue.untaken() if isinstance(frame, Error)]


async def test_an_edge_that_still_waits_hears_that_the_guard_died() -> None:
    (error,) = await heard_by(RUN)
    assert (error.error.code, error.error.stop) == ("stop_lost", "output_guardrails")


async def test_a_later_run_with_the_same_id_is_not_ended_by_it() -> None:
    assert await heard_by(LATER_RUN) == []
