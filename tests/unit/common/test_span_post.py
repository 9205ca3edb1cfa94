"""Spans that an outage of the bus may have swallowed are stored behind it; what does not fit is counted."""

from __future__ import annotations

import pytest

from baton_common import span_post
from baton_common.errors import BusError, MessageTooLarge
from baton_common.memory_bus import MemoryBus
from baton_common.span_post import KEPT_SECONDS, SpanPost
from baton_contracts import subjects
from baton_contracts.identifiers import new_request_id
from baton_contracts.spans import Span, SpanBatch
from tests.support.relay import HandClock, eventually


def batch() -> SpanBatch:
    rid = new_request_id()
    span = Span(
        span_id=rid[:16],
        stop=7,
        service="engine_worker",
        instance="engine_worker-1",
        name="handle",
        start=1000.0,
        duration=1.0,
    )
    return SpanBatch(request_id=rid, tenant_id="acme", spans=(span,))


class Rig:
    def __init__(self) -> None:
        self.bus, self.clock = MemoryBus(), HandClock()
        self.post = SpanPost(self.bus, self.clock.clock)

    @property
    def stored(self) -> set[str]:
        """Request ids of what the stream has acknowledged."""
        return {subjects.request_id_of(subject) for subject in self.bus.stored}


async def test_what_was_made_while_the_bus_was_away_is_stored_when_it_is_back() -> None:
    rig, sent = Rig(), [batch() for _ in range(3)]
    await rig.post.send(sent[0])
    rig.bus.online = False
    rig.clock.move(600)
    await rig.post.send(sent[1])
    rig.clock.move(600)
    await rig.post.send(sent[2])
    assert rig.stored == set()
    rig.bus.online = True
    await eventually(lambda: rig.stored == {one.request_id for one in sent})
    (payload,) = rig.bus.stored[subjects.trace(sent[1].request_id)].values()
    assert SpanBatch.decode(payload) == sent[1]
    assert rig.post.num_dropped == 0


async def test_what_had_been_sent_long_before_is_not_sent_twice() -> None:
    rig, early, late = Rig(), batch(), batch()
    await rig.post.send(early)
    rig.clock.move(KEPT_SECONDS + 1)
    await rig.post.send(late)
    rig.bus.online = False
    rig.bus.online = True
    await eventually(lambda: rig.stored == {late.request_id})


async def test_the_oldest_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, sent = Rig(), [batch() for _ in range(5)]
    size = len(sent[0].encode())
    monkeypatch.setattr(span_post, "KEPT_BYTES", 2 * size)
    rig.bus.online = False
    for one in sent:
        await rig.post.send(one)
    assert rig.post.num_dropped == 3
    rig.bus.online = True
    await eventually(lambda: rig.stored == {one.request_id for one in sent[3:]})


async def test_a_stream_that_does_not_come_back_costs_what_was_not_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()

    async def no_stream(subject: str, *_: object, **__: object) -> None:
        raise BusError(subject, "no such stream")

    monkeypatch.setattr(rig.bus, "publish_durable", no_stream)
    await rig.post.send(batch())
    rig.bus.online = False
    await rig.post.send(batch())
    rig.bus.online = True
    await eventually(lambda: rig.post.num_dropped == 1)
    assert "1 batches of spans dropped" in caplog.text


async def test_one_that_is_too_large_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig, sent = Rig(), [batch() for _ in range(3)]
    large, store = subjects.trace(sent[1].request_id), rig.bus.publish_durable

    async def bounded(subject: str, payload: bytes, *, message_id: str, timeout: float) -> None:
        if subject == large:
            raise MessageTooLarge(subject)
        await store(subject, payload, message_id=message_id, timeout=timeout)

    monkeypatch.setattr(rig.bus, "publish_durable", bounded)
    rig.bus.online = False
    for one in sent:
        await rig.post.send(one)
    rig.bus.online = True
    await eventually(lambda: rig.stored == {sent[0].request_id, sent[2].request_id})
    assert rig.post.num_dropped == 1
    assert f"1 batches of spans dropped: {large}" in caplog.text


async def test_a_second_outage_in_the_middle_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, sent = Rig(), [batch() for _ in range(3)]
    store, calls = rig.bus.publish_durable, list[str]()

    async def break_at_the_second(subject: str, payload: bytes, *, message_id: str, timeout: float) -> None:
        calls.append(subject)
        if len(calls) == 2:
            rig.bus.online = False
        await store(subject, payload, message_id=message_id, timeout=timeout)

    monkeypatch.setattr(rig.bus, "publish_durable", break_at_the_second)
    rig.bus.online = False
    for one in sent:
        await rig.post.send(one)
    rig.bus.online = True
    await eventually(lambda: len(calls) == 2 and not rig.bus.online)
    assert rig.stored == {sent[0].request_id}
    rig.bus.online = True
    await eventually(lambda: rig.stored == {one.request_id for one in sent})
    assert rig.post.num_dropped == 0


async def test_what_the_bus_refuses_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()

    async def too_large(subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        raise MessageTooLarge(subject)

    monkeypatch.setattr(rig.bus, "publish", too_large)
    await rig.post.send(batch())
    assert rig.post.num_dropped == 1
