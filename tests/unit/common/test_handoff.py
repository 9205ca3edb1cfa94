"""Handing on: who is missing, busy, stuck or refusing, and what the client is told."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from baton_common.bus import BusMessage
from baton_common.clock import Clock
from baton_common.errors import RequestFailed
from baton_common.handoff import hand_on
from baton_common.memory_bus import MemoryBus
from baton_common.tasks import spawn
from baton_contracts.errors import ErrorBody
from baton_contracts.handoffs import Ack

SUBJECT = "baton.v1.gateway." + "d" * 32


async def answering(bus: MemoryBus, answer: Callable[[], Ack | None]) -> None:
    def on_message(message: BusMessage) -> None:
        if ack := answer():
            spawn(bus.publish(message.reply, ack.encode()))

    await bus.subscribe("baton.v1.gateway.*", on_message, queue="llm_gateway")


async def hand(bus: MemoryBus, *, seconds: float = 5, ack_seconds: float = 2) -> Ack:
    deadline = time.time() + seconds
    return await hand_on(
        bus, Clock(), SUBJECT, lambda: b"{}", to="llm_gateway", deadline=deadline, ack_seconds=ack_seconds
    )


async def test_nobody_there_is_a_503_that_names_the_stop() -> None:
    with pytest.raises(RequestFailed) as failed:
        await hand(MemoryBus())
    error = failed.value.error
    assert (error.code, error.status, error.stop) == ("no_responder", 503, "llm_gateway")
    assert "llm_gateway" in error.message


async def test_a_busy_member_is_asked_again() -> None:
    bus, answers = MemoryBus(), iter(["busy", "busy", "held"])
    await answering(bus, lambda: Ack(verdict=next(answers), instance="llm_gateway-1"))  # type: ignore[arg-type]
    assert (await hand(bus)).verdict == "held"


async def test_all_busy_for_long_is_a_503() -> None:
    bus = MemoryBus()
    ticks = iter(float(number) / 3 for number in range(1000))
    await answering(bus, lambda: Ack(verdict="busy", instance="llm_gateway-1"))
    with pytest.raises(RequestFailed) as failed:
        await hand_on(
            bus, Clock(wall=lambda: next(ticks)), SUBJECT, lambda: b"{}", to="llm_gateway", deadline=500
        )
    assert failed.value.error.code == "stop_busy"


async def test_silence_is_a_503_and_not_a_hang() -> None:
    bus = MemoryBus()
    await answering(bus, lambda: None)
    with pytest.raises(RequestFailed) as failed:
        await hand(bus, ack_seconds=0.02)
    assert (failed.value.error.code, failed.value.error.status) == ("stop_unresponsive", 503)


async def test_a_refusal_passes_its_error_on() -> None:
    bus = MemoryBus()
    error = ErrorBody(code="context_length_exceeded", message="9000 > 8192", param="messages")
    await answering(bus, lambda: Ack(verdict="refused", instance="x", error=error))
    with pytest.raises(RequestFailed) as failed:
        await hand(bus)
    assert failed.value.error == error


async def test_nothing_is_sent_after_the_deadline() -> None:
    bus, asked = MemoryBus(), list[int]()
    await answering(bus, lambda: asked.append(1))
    with pytest.raises(RequestFailed) as failed:
        await hand(bus, seconds=-1)
    assert failed.value.error.code == "deadline_exceeded"
    assert asked == []


async def test_a_bus_that_is_away_is_a_503() -> None:
    bus = MemoryBus(online=False)
    with pytest.raises(RequestFailed) as failed:
        await hand(bus)
    assert failed.value.error.code == "bus_unavailable"
