"""A deadline that passes while the rest of a connection is read: the answer stays what it was."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.bus import BusMessage
from baton_common.frame_sender import FrameOutbox
from baton_common.memory_bus import MemoryBus
from baton_common.routes import Target
from baton_contracts.frames import End, Usage
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.audience import Audience
from baton_llm_gateway.books import Books
from baton_llm_gateway.other_servers import OtherServers, Providers
from baton_llm_gateway.providers.call import ProviderCall
from baton_llm_gateway.providers.connections import Connections
from baton_llm_gateway.run_rows import RunRows
from baton_llm_gateway.target_health import TargetHealth
from baton_llm_gateway.telling import Telling
from tests.support.errands import errand_over
from tests.support.waiting import eventually

TARGET = Target("far/0", "http://127.0.0.1:1/v1", "up")


@pytest.mark.parametrize(("has_ended", "outcome", "num_told"), [(True, "finished", 0), (False, "error", 1)])
async def test_what_had_ended_is_booked_as_it_ended(
    monkeypatch: pytest.MonkeyPatch, has_ended: bool, outcome: str, num_told: int
) -> None:
    bus, is_reading = MemoryBus(), asyncio.Event()
    errand = errand_over(bus, guard=None)
    ctx = errand.ctx
    rows = RunRows(ctx, Books(bus))
    providers = Providers(Connections({}), TargetHealth(ctx.node.clock), FrameOutbox(bus, ctx.node.instance))
    servers = OtherServers(errand, Audience(errand), Telling(errand), rows, providers)
    attempt = Attempt(1, "m", 0.0)
    told: list[BusMessage] = []
    await bus.subscribe(errand.way, told.append)

    async def read_the_tail(call: ProviderCall) -> None:
        del call
        attempt.replica = TARGET.name
        if has_ended:
            usage = Usage(prompt_tokens=9, completion_tokens=4)
            attempt.end(End(request_id=ctx.request_id, sender="g", seq=2, finish_reason="stop", usage=usage))
        is_reading.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(ProviderCall, "run", read_the_tail)
    calling = asyncio.create_task(servers.call(attempt, TARGET))
    await eventually(is_reading.is_set)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert (attempt.outcome, rows.unbooked) == (outcome, attempt)
    await asyncio.sleep(0)
    assert len(told) == num_told
