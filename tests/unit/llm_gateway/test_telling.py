"""What a request still tells when it is over here: only its own run hears it."""

from __future__ import annotations

import asyncio

from baton_common.frame_inbox import FrameInbox
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.frames import Error
from baton_contracts.heartbeats import Lease
from baton_llm_gateway.telling import tell_if_lost
from tests.support.errands import EDGE, GUARD, errand_over
from tests.support.waiting import eventually


async def heard_by(run_id: str | None = None) -> list[Error]:
    """By an edge whose request of this run (else of that run itself) has the id of one whose guard dies
    behind its end."""
    bus = MemoryBus()
    ctx = errand_over(bus).ctx
    await ctx.node.leases.start()
    inbox = FrameInbox(bus, subjects.reply_all(EDGE))
    await inbox.start()
    queue = inbox.open(ctx.request_id)
    queue.run_id = run_id or ctx.envelope.run_id
    said: list[bytes] = []
    await bus.subscribe(subjects.reply_all(EDGE), lambda message: said.append(message.payload))

    tell_if_lost(ctx, GUARD)
    gone = Lease(service="output_guardrails", instance=GUARD, state="gone", mailbox_depth=0)
    await bus.publish(subjects.lease(GUARD), gone.encode())
    await eventually(lambda: len(said) == 1)
    await asyncio.sleep(0)
    return [frame for frame in queue.untaken() if isinstance(frame, Error)]


async def test_an_edge_that_still_waits_hears_that_the_guard_died() -> None:
    (error,) = await heard_by()
    assert (error.error.code, error.error.stop) == ("stop_lost", "output_guardrails")


async def test_a_later_run_with_the_same_id_is_not_ended_by_it() -> None:
    assert await heard_by("later001") == []
