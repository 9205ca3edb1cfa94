"""The output guardrails on a bus: what the edge gets, whatever engine, gateway and client do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from baton_common.cancels import broadcast_cancel
from baton_common.frame_sender import RING_FRAMES, FrameOutbox
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.frames import Cancel, Data, End, Error, Held, Prologue, encode_frame
from baton_contracts.handoffs import Ack, GuardOutHandoff
from baton_contracts.heartbeats import Lease
from tests.support.guard_bench import USAGE, Answer, Bench, guard_bench
from tests.support.relay import eventually, make_envelope


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with guard_bench(output_guard_cancel_seconds=0.05, output_guard_takeover_seconds=0.05) as running:
        yield running
        await eventually(lambda: running.guard.num_held == 0)
        inboxes = [one for one in bus_of(running).subscriptions if "frames" in one.pattern]
        assert len(inboxes) == 1
        assert inboxes[0].on_message.__self__.num_open == 0  # pyright: ignore[reportFunctionMemberAccess]


def bus_of(bench: Bench) -> MemoryBus:
    assert isinstance(bench.bus, MemoryBus)
    return bench.bus


async def test_an_answer_passes_frame_by_frame(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue(model="m7", citations=("a.md",)))
    await stream.send(answer.data("It ", 1, 2))
    await stream.send(answer.data(""))
    await stream.send(answer.data("work.", 3))
    await stream.send(answer.end())
    prologue, *data, end = await answer.received()
    assert isinstance(prologue, Prologue)
    assert (prologue.model, prologue.citations, prologue.guard) == ("m7", ("a.md",), answer.ack.instance)
    texts = [frame.text for frame in data if isinstance(frame, Data)]
    assert texts == ["It ", "", "work.", "\n\nSources: [1] a.md"]
    assert isinstance(end, End)
    assert (end.finish_reason, end.usage, end.blocks_freed) == ("stop", USAGE, 4)
    assert bench.cancels == []


async def test_an_answer_over_documents_names_the_ones_that_it_cites(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue(citations=("a.md", "b.md > B", "c.md")))
    await stream.send(answer.data("Full [3"))
    await stream.send(answer.data("], or busy [2]."))
    await stream.send(answer.end())
    assert (await answer.text())[0] == "Full [3], or busy [2].\n\nSources: [2] b.md > B; [3] c.md"


async def test_the_trace_says_what_the_filter_did(bench: Bench) -> None:
    answer = await bench.open({"<PERSON_1>": "Ann"})
    await answer.say("Dear <PER", "SON_1>, ", "hello")
    await answer.received()
    await eventually(lambda: any(span.name == "handle" for span in bench.spans))
    (span,) = [span for span in bench.spans if span.name == "filter"]
    assert span.stop == 8
    assert (span.attributes["frames"], span.attributes["held_back_max_chars"]) == (5, 4)
    assert (span.attributes["blocked"], span.attributes["attempts"]) == (False, 1)
    assert (
        0 < float(str(span.attributes["added_us_per_frame"])) <= float(str(span.attributes["added_us_max"]))
    )
    assert "Ann" not in repr(bench.spans)


async def test_values_are_restored_over_borders(bench: Bench) -> None:
    answer = await bench.open({"<PERSON_1>": "Mary O'Neil"})
    await answer.say("Dear <", "PERS", "ON_1", ">, hi")
    assert (await answer.text())[0] == "Dear Mary O'Neil, hi"


async def test_a_banned_phrase_ends_the_answer_and_stops_the_engine(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue())
    await stream.send(answer.data("The sec"))
    await stream.send(answer.data("ret plan, "))
    await eventually(lambda: len(bench.cancels) == 1)
    await stream.send(answer.data("and more"))
    await stream.send(answer.end("cancelled"))
    text, end = await answer.text()
    assert text == "The "
    assert isinstance(end, End)
    assert (end.finish_reason, end.usage, end.blocks_freed) == ("content_filter", USAGE, 4)
    assert [cancel.reason for cancel in bench.cancels] == ["content_filter"]


async def test_a_blocked_answer_ends_even_if_the_engine_says_nothing_more(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue())
    await stream.send(answer.data("secret plan.", 5, 6, 7))
    text, end = await answer.text()
    assert text == ""
    assert isinstance(end, End)
    assert (end.finish_reason, end.usage.completion_tokens) == ("content_filter", 3)


async def test_a_phrase_at_the_very_end_is_banned_without_a_cancel(bench: Bench) -> None:
    answer = await bench.open()
    await answer.say("the secret", " plan")
    text, end = await answer.text()
    assert text == "the "
    assert isinstance(end, End)
    assert end.finish_reason == "content_filter"
    assert bench.cancels == []


async def test_token_ids_do_not_spell_what_is_held_back(bench: Bench) -> None:
    answer = await bench.open()
    await answer.say("x")
    assert all(frame.token_ids == () for frame in await answer.received() if isinstance(frame, Data))


async def test_a_second_attempt_continues_the_same_stream(bench: Bench) -> None:
    answer = await bench.open()
    first, other = answer.attempt(), FrameOutbox(bench.bus, "engine_worker-2")
    await first.send(answer.prologue(replica="one"))
    await bench.bus.publish(first.subject, encode_frame(answer.error(final=False)))
    second = answer.attempt(2, other)
    await second.send(answer.prologue(replica="two"))
    await second.send(answer.data("Hello"))
    await second.send(answer.end())
    prologue, data, end = await answer.received()
    assert isinstance(prologue, Prologue)
    assert isinstance(data, Data)
    assert isinstance(end, End)
    assert (prologue.replica, data.text, end.finish_reason) == ("one", "Hello", "stop")


async def test_an_answer_goes_on_in_the_middle_of_what_a_rule_watches(bench: Bench) -> None:
    answer = await bench.open({"<EMAIL_1>": "a@b.example"})
    first, other = answer.attempt(), FrameOutbox(bench.bus, "engine_worker-2")
    await first.send(answer.prologue())
    await first.send(answer.data("Write to <EMA", 1, 2))
    await first.send(answer.data("IL", 3))
    second = answer.attempt(2, other)
    await second.send(answer.prologue(resumed=(2,)))
    await second.send(answer.data("IL", 3))
    await second.send(answer.data("_1>!", 4))
    await second.send(answer.end())
    text, end = await answer.text()
    assert (text, end.kind) == ("Write to a@b.example!", "end")


async def test_a_part_of_the_answer_that_is_missing_between_two_attempts_is_an_error(bench: Bench) -> None:
    answer = await bench.open()
    first, other = answer.attempt(), FrameOutbox(bench.bus, "engine_worker-2")
    await first.send(answer.prologue())
    await first.send(answer.data("One ", 1))
    await answer.attempt(2, other).send(answer.prologue(resumed=(2,)))
    text, error = await answer.text()
    assert text == "One "
    assert isinstance(error, Error)
    assert error.error.code == "stream_gap"
    assert "1 tokens of it did not come here" in error.error.message


async def test_the_last_word_of_a_superseded_attempt_is_not_the_end(bench: Bench) -> None:
    answer = await bench.open()
    first = answer.attempt()
    await first.send(answer.prologue())
    await broadcast_cancel(bench.bus, Cancel(request_id=answer.rid, reason="superseded", attempt=1), enough=1)
    await first.send(answer.end("cancelled"))
    second = answer.attempt(2, FrameOutbox(bench.bus, "engine_worker-2"))
    await second.send(answer.prologue())
    await second.send(answer.data("Hello"))
    await second.send(answer.end())
    text, end = await answer.text()
    assert (text, end.kind) == ("Hello", "end")


async def test_the_gateways_final_error_reaches_the_edge(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue())
    await stream.send(answer.data("Half an ans"))
    error = answer.error(final=True, sender=bench.gateway.instance, code="upstream_error")
    await bench.bus.publish(stream.subject, encode_frame(error))
    *_, last = await answer.received()
    assert isinstance(last, Error)
    assert (last.error.code, last.error.stop) == ("upstream_error", "engine_worker")
    assert bench.cancels == []


async def test_a_cancel_by_others_waits_for_the_engines_last_word(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue())
    await answer.next()
    await broadcast_cancel(bench.bus, Cancel(request_id=answer.rid, reason="client_disconnected"), enough=1)
    await stream.send(answer.data("nobody reads this"))
    await stream.send(answer.end("cancelled"))
    end = await answer.next()
    assert isinstance(end, End)
    assert (end.finish_reason, end.blocks_freed) == ("cancelled", 4)


async def test_a_cancel_after_the_engines_last_word_ends_at_once(bench: Bench) -> None:
    async with guard_bench(output_guard_cancel_seconds=60, output_guard_takeover_seconds=60) as patient:
        answer = await patient.open()
        stream = answer.attempt()
        await stream.send(answer.prologue())
        await answer.next()
        await stream.send(answer.end("cancelled"))
        await broadcast_cancel(patient.bus, Cancel(request_id=answer.rid, reason="deadline"), enough=1)
        end = await answer.next()
        assert isinstance(end, End)
        assert end.finish_reason == "cancelled"


async def test_a_cancel_without_a_last_word_is_bounded(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue())
    await answer.next()
    await broadcast_cancel(bench.bus, Cancel(request_id=answer.rid, reason="client_disconnected"), enough=1)
    last = await answer.next()
    assert isinstance(last, Error)
    assert last.error.code == "client_closed_request"


async def test_a_vanished_gateway_is_an_error_and_a_cancel(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue())
    await answer.next()
    gone = Lease(service="llm_gateway", instance=bench.gateway.instance, state="gone")
    await bench.bus.publish(subjects.lease(gone.instance), gone.encode())
    last = await answer.next()
    assert isinstance(last, Error)
    assert (last.error.code, last.error.stop) == ("stop_lost", "llm_gateway")
    await eventually(lambda: [cancel.reason for cancel in bench.cancels] == ["lease_lost"])


async def test_a_lost_frame_is_had_again(bench: Bench) -> None:
    answer = await bench.open()
    bus = bus_of(bench)
    stream = answer.attempt()
    await stream.send(answer.prologue())
    bus.online = False  # the frame is numbered and kept, but does not arrive
    await stream.send(answer.data("Hel"))
    bus.online = True
    await stream.send(answer.data("lo"))
    await stream.send(answer.end())
    assert (await answer.text())[0] == "Hello"


async def test_a_gap_that_can_not_be_filled_is_an_error_and_a_cancel(bench: Bench) -> None:
    answer = await bench.open()
    stream = answer.attempt()
    await stream.send(answer.prologue())
    bus = bus_of(bench)
    bus.online = False
    for _ in range(RING_FRAMES + 1):  # more than the engine can remember
        await stream.send(answer.data("x"))
    bus.online = True
    await stream.send(answer.data("y"))
    *_, last = await answer.received()
    assert isinstance(last, Error)
    assert last.error.code == "stream_gap"
    await eventually(lambda: [cancel.reason for cancel in bench.cancels] == ["stream_broken"])


async def test_a_vanished_engine_is_the_gateways_matter_for_a_while(bench: Bench) -> None:
    answer = await bench.open()
    subject = subjects.frames(bench.gateway.instance, answer.ack.instance, answer.rid)
    gone = {"sender": "engine_worker-9", "attempt": 1}
    await bench.bus.publish(subject, encode_frame(answer.prologue(**gone)))
    late = answer.data("lo").model_copy(update={"seq": 5, **gone})
    await bench.bus.publish(subject, encode_frame(late))
    *_, last = await answer.received()
    assert isinstance(last, Error)
    assert last.error.code == "stop_lost"
    assert "engine_worker-9" in last.error.message
    await eventually(lambda: [cancel.reason for cancel in bench.cancels] == ["lease_lost"])


async def test_a_vanished_engine_and_a_new_attempt(bench: Bench) -> None:
    async with guard_bench(output_guard_takeover_seconds=60) as patient:
        answer = await patient.open()
        subject = subjects.frames(patient.gateway.instance, answer.ack.instance, answer.rid)
        gone = {"sender": "engine_worker-9", "attempt": 1}
        await patient.bus.publish(subject, encode_frame(answer.prologue(**gone)))
        await patient.bus.publish(
            subject, encode_frame(answer.data("").model_copy(update={"seq": 5, **gone}))
        )
        second = answer.attempt(2)
        await second.send(answer.prologue())
        await second.send(answer.data("Hello"))
        await second.send(answer.end())
        assert (await answer.text())[0] == "Hello"


@pytest.mark.parametrize(("attempt", "told"), [(1, None), (2, 2)])
async def test_the_edge_is_told_which_attempt_began_the_answer(
    bench: Bench, attempt: int, told: int | None
) -> None:
    answer = await bench.open()
    stream = answer.attempt(attempt)
    await stream.send(answer.prologue())
    await stream.send(answer.end())
    first, _ = await answer.received()
    assert isinstance(first, Prologue)
    assert (first.attempt, first.begun_by) == (1, told)


async def test_an_engine_that_took_over_may_be_silent_for_long(bench: Bench) -> None:
    """A grammar takes it many seconds: the gateway, which knows that it is there, has said so."""
    answer = await bench.open()
    subject = subjects.frames(bench.gateway.instance, answer.ack.instance, answer.rid)
    first = answer.attempt()
    await first.send(answer.prologue())
    await first.send(answer.data("Hel", 1))
    held = Held(request_id=answer.rid, attempt=2, sender=bench.gateway.instance, stop="engine_worker")
    await bench.bus.publish(subject, encode_frame(held))
    await first.send(answer.end("cancelled"))  # its late last word; then a gap, and nobody there to mend it
    gone = {"sender": "engine_worker-9", "attempt": 1, "seq": 5}
    await bench.bus.publish(subject, encode_frame(answer.data("").model_copy(update=gone)))
    patience_is_over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, patience_is_over.set)  # the guard's own is 0.05 s
    await patience_is_over.wait()
    second = answer.attempt(2)
    await second.send(answer.prologue(resumed=(1,)))
    await second.send(answer.data("lo", 2))
    await second.send(answer.end())
    text, last = await answer.text()
    assert (text, type(last)) == ("Hello", End)
    assert bench.cancels == []


async def test_an_engine_that_begins_late_does_not_take_the_successors_place(bench: Bench) -> None:
    """It was frozen when it was handed the request, and finds its cancel as it wakes."""
    answer = await bench.open()
    subject = subjects.frames(bench.gateway.instance, answer.ack.instance, answer.rid)
    held = Held(request_id=answer.rid, attempt=2, sender=bench.gateway.instance, stop="engine_worker")
    await bench.bus.publish(subject, encode_frame(held))
    first = answer.attempt()
    await first.send(answer.prologue())
    await first.send(answer.end("cancelled"))
    patience_is_over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, patience_is_over.set)  # the guard's own is 0.05 s
    await patience_is_over.wait()
    second = answer.attempt(2)
    await second.send(answer.prologue())
    await second.send(answer.data("Hello", 1))
    await second.send(answer.end())
    text, last = await answer.text()
    assert (text, type(last)) == ("Hello", End)
    assert bench.cancels == []


async def test_the_gateways_word_of_a_successor_may_come_behind_its_prologue(bench: Bench) -> None:
    """It goes the longer way. An end that overtakes the client's cancel is still kept for it."""
    answer = await bench.open()
    subject = subjects.frames(bench.gateway.instance, answer.ack.instance, answer.rid)
    second = answer.attempt(2)
    await second.send(answer.prologue())
    held = Held(request_id=answer.rid, attempt=2, sender=bench.gateway.instance, stop="engine_worker")
    await bench.bus.publish(subject, encode_frame(held))
    await second.send(answer.data("Hel", 1))
    await second.send(answer.end("cancelled"))
    await answer.next()
    await answer.next()
    await broadcast_cancel(bench.bus, Cancel(request_id=answer.rid, reason="client_disconnected"), enough=1)
    last = await answer.next()
    assert isinstance(last, End)
    assert (last.finish_reason, last.usage) == ("cancelled", USAGE)


async def test_a_vault_of_another_request_is_refused_before_anything_flows(bench: Bench) -> None:
    answer = await _open_with_vault(bench, "bm90IGEgdmF1bHQ=")
    assert answer.verdict == "refused"
    assert answer.error is not None
    assert (answer.error.code, answer.error.stop) == ("stop_failed", "output_guardrails")


async def _open_with_vault(bench: Bench, vault: str) -> Ack:
    envelope = make_envelope(edge="edge_api-1")
    handoff = GuardOutHandoff(envelope=envelope, gateway=bench.gateway.instance, vault=vault)
    return Ack.decode(
        await bench.bus.request(subjects.guard_out(envelope.request_id), handoff.encode(), timeout=5)
    )


async def test_two_answers_at_once_get_their_own_values(bench: Bench) -> None:
    one = await bench.open({"<PERSON_1>": "Ann"})
    two = await bench.open({"<PERSON_1>": "Bob"})
    first, second = one.attempt(), two.attempt()
    for answer, stream in ((one, first), (two, second)):
        await stream.send(answer.prologue())
    for piece in ("Dear <PER", "SON_1>", "!"):
        await first.send(one.data(piece))
        await second.send(two.data(piece))
    await first.send(one.end())
    await second.send(two.end())
    texts: list[tuple[Answer, str]] = [(one, "Dear Ann!"), (two, "Dear Bob!")]
    for answer, text in texts:
        assert (await answer.text())[0] == text
