"""The test bus behaves like NATS where the runtime depends on it."""

from __future__ import annotations

import pytest

from baton_common.bus import BusMessage
from baton_common.errors import BusTimeout, NoResponders
from baton_common.memory_bus import MemoryBus, subject_matches
from tests.support.relay import eventually


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("a.b.c", "a.b.c", True),
        ("a.*.c", "a.b.c", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.b", "a.b.c", False),
    ],
)
def test_wildcards(pattern: str, subject: str, matches: bool) -> None:
    assert subject_matches(pattern, subject) is matches


async def test_a_queue_group_gives_each_message_to_one_member() -> None:
    bus, heard = MemoryBus(), list[str]()
    for member in ("one", "two"):
        await bus.subscribe("work.*", lambda message, member=member: heard.append(member), queue="group")
    await bus.subscribe("work.*", lambda message: heard.append("listener"))
    for _ in range(2):
        await bus.publish("work.x", b"")
    await eventually(lambda: len(heard) == 4)
    assert sorted(heard) == ["listener", "listener", "one", "two"]


async def test_no_responders_at_once_and_silence_as_a_timeout() -> None:
    bus = MemoryBus()
    with pytest.raises(NoResponders):
        await bus.request("nobody", b"", timeout=60)

    def silent(message: BusMessage) -> None:
        return None

    await bus.subscribe("somebody", silent)
    with pytest.raises(BusTimeout):
        await bus.request("somebody", b"", timeout=0.01)
    assert len(bus.subscriptions) == 1


async def test_a_durable_message_is_stored_once() -> None:
    bus = MemoryBus()
    for payload in (b"first", b"again"):
        await bus.publish_durable("after.x", payload, message_id="same")
    assert bus.stored == {"after.x": {"same": b"first"}}
