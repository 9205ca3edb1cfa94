"""A deadline that passes before the router has said who took the request."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.bus import BusMessage
from baton_common.frame_inbox import FrameInbox
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.frames import Cancel, Data, End, Prologue, Usage
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.audience import Audience
from baton_llm_gateway.books import Books
from baton_llm_gateway.listening import Listener
from baton_llm_gateway.own_replicas import OwnReplicas
from baton_llm_gateway.run_rows import RunRows
from baton_llm_gateway.telling import Telling
from tests.support.errands import GUARD, errand_over
from tests.support.waiting import eventually

REPLICA = "engine_worker-1"
USAGE = Usage(prompt_tokens=7, completion_tokens=2)


async def cut_off(*, has_begun: bool) -> tuple[Attempt, Attempt | None, list[Cancel]]:
    """An attempt, what of it is to be booked, and what engines were told."""
    bus = MemoryBus()
    errand = errand_over(bus)
    ctx, ourselves = errand.ctx, errand.ctx.node.instance
    rid = ctx.request_id
    queue = FrameInbox(bus, "frames").open(rid)
    listener = Listener(queue, errand.cancellation, request_id=rid, ourselves=ourselves, stall_seconds=5)
    rows = RunRows(ctx, Books(bus))
    replicas = OwnReplicas(errand, Audience(errand), Telling(errand), rows, listener)
    asked: list[BusMessage] = []
    told: list[Cancel] = []
    await bus.subscribe(subjects.ROUTE_ALL, asked.append)
    await bus.subscribe(subjects.CANCEL_ALL, lambda message: told.append(Cancel.decode(message.payload)))
    attempt = Attempt(1, "m", 0.0)

    calling = asyncio.create_task(replicas.call(attempt))
    await eventually(lambda: bool(asked))
    if has_begun:
        ours = {"request_id": rid, "sender": REPLICA}
        queue.put(Prologue(**ours, seq=0, model="m", replica=REPLICA, gateway=ourselves, guard=GUARD))
        queue.put(Data(**ours, seq=1, text="Hel", token_ids=(1, 2)))
        queue.put(End(**ours, seq=2, finish_reason="cancelled", usage=USAGE))
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await eventually(lambda: bool(told))
    queue.close()
    return attempt, rows.unbooked, told


async def test_a_replica_that_has_begun_is_stopped_and_booked_with_what_it_used() -> None:
    attempt, booked, told = await cut_off(has_begun=True)
    assert booked is attempt
    assert (attempt.replica, attempt.usage, attempt.num_tokens) == (REPLICA, USAGE, 2)
    assert attempt.error is not None
    assert attempt.error.code == "deadline_exceeded"
    assert [(cancel.reason, cancel.attempt, cancel.never_heard) for cancel in told] == [
        ("deadline", 1, False)
    ]


async def test_of_one_that_nobody_heard_of_there_is_no_row_and_whoever_has_it_is_told_so() -> None:
    _, booked, told = await cut_off(has_begun=False)
    assert booked is None
    assert [(cancel.reason, cancel.never_heard) for cancel in told] == [("deadline", True)]
