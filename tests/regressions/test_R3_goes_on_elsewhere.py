"""R3, R5: a replica that is lost or leaves in the middle of an answer: another one goes on behind the last
token. One stream, no token twice, one bill."""

from __future__ import annotations

from typing import Any

import pytest

from baton_common.bus import BusMessage
from baton_contracts import subjects
from baton_contracts.frames import decode_frame
from baton_contracts.prompt import Sampling, StructuredOutput
from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Running, Stage
from tests.support.scripted_answer import WORDS, Script
from tests.support.waiting import eventually


async def begun(
    stage: Stage, tokens: int, **request: Any
) -> tuple[str, FakeEngine, FakeEngine, list[Running]]:
    """A request of which one of two engines has said `tokens` tokens; that engine first."""
    engines = [FakeEngine(autoplay=False) for _ in range(2)]
    workers = await stage.whole(*engines)
    request_id = await stage.send(stage.handoff(**request))
    await eventually(lambda: any(engine.waiting for engine in engines))
    first = next(engine for engine in engines if engine.waiting)
    second = next(engine for engine in engines if engine is not first)
    for _ in range(tokens):
        first.step()
    holder = workers[engines.index(first)]
    return request_id, first, second, [holder, *(worker for worker in workers if worker is not holder)]


@pytest.mark.parametrize("tokens", range(1, len(WORDS)))
async def test_cut_after_every_token_the_answer_is_whole_and_billed_once(
    memory_stage: Stage, tokens: int
) -> None:
    stage = memory_stage
    request_id, first, second, [lost, other] = await begun(stage, tokens)
    first.script = Script(error_after=tokens)
    first.step()
    await eventually(lambda: bool(second.waiting))
    asked = second.waiting[0].asked
    for _ in WORDS[tokens:]:
        second.step()
    heard = await stage.listen(request_id)

    assert asked.resume_token_ids == tuple(range(1, tokens + 1))
    assert len(heard.prologues) == 1
    assert (heard.text, heard.token_ids) == ("".join(WORDS), [1, 2, 3, 4, 5])
    assert heard.error is None
    assert heard.end is not None
    assert heard.end.finish_reason == "stop"
    usage = heard.end.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 5)
    await eventually(lambda: len(stage.records) == 2)
    rows = [
        (row.attempt, row.replica, row.outcome, row.usage.prompt_tokens, row.usage.completion_tokens)
        for row in stage.records
    ]
    assert rows == [
        (1, lost.instance, "migrated", 0, tokens),
        (2, other.instance, "finished", 7, 5 - tokens),
    ]
    assert stage.records[0].error_code == "stop_failed"
    await eventually(lambda: not first.running and not second.running)


async def test_a_second_replica_may_compile_a_grammar_first(
    memory_stage: Stage,
) -> None:
    """The guard hears that there is one before it begins: its patience with a lost engine is over then."""
    stage = memory_stage
    told: list[tuple[str, int]] = []

    def on_frame(message: BusMessage) -> None:
        frame = decode_frame(message.payload)
        if frame.attempt == 2:
            told.append((frame.kind, frame.attempt))

    await stage.sender.subscribe(f"{subjects.ROOT}.frames.*.*.*", on_frame)
    structured = StructuredOutput(kind="regex", text="[a-z ]+", param="regex")
    request_id, first, second, _ = await begun(stage, 2, sampling=Sampling(structured=structured))
    second.grammars_wait = True
    first.script = Script(error_after=2)
    first.step()
    await eventually(lambda: bool(told))
    assert told == [("held", 2)]
    assert not second.waiting
    await eventually(lambda: len(second.grammars) == 1)
    second.grammars[0].set_result(None)
    await eventually(lambda: bool(second.waiting))
    for _ in WORDS[2:]:
        second.step()
    heard = await stage.listen(request_id)
    assert (heard.text, heard.error) == ("".join(WORDS), None)


async def test_several_answers_go_on_each_at_its_place(memory_stage: Stage) -> None:
    stage = memory_stage
    request_id, first, second, _ = await begun(stage, 2, sampling=Sampling(n=2))
    first.script = Script(error_after=2)
    first.step()
    await eventually(lambda: bool(second.waiting))
    asked = second.waiting[0].asked
    assert (asked.resume_token_ids, asked.resume_others) == ((1, 2), ((1, 2),))
    for _ in WORDS[2:]:
        second.step()
    heard = await stage.listen(request_id)

    assert sorted(heard.token_ids) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert heard.end is not None
    assert heard.end.usage.completion_tokens == 10
    await eventually(lambda: len(stage.records) == 2)
    assert [row.usage.completion_tokens for row in stage.records] == [4, 6]


async def test_a_replica_that_is_asked_to_leave_hands_back_what_it_can_not_finish(
    memory_stage: Stage,
) -> None:
    stage = memory_stage
    request_id, first, second, [leaving, other] = await begun(stage, 2)
    await leaving.leave(drain_seconds=0.05)
    await eventually(lambda: bool(second.waiting))
    assert first.stats().kv_blocks_held == 0
    for _ in WORDS[2:]:
        second.step()
    heard = await stage.listen(request_id)

    assert (heard.text, heard.error) == ("".join(WORDS), None)
    await eventually(lambda: len(stage.records) == 2)
    rows = [(row.replica, row.outcome, row.error_code) for row in stage.records]
    assert rows == [(leaving.instance, "migrated", "shutting_down"), (other.instance, "finished", None)]


async def test_a_replica_that_lost_sight_of_us_and_stopped_is_no_cancel(memory_stage: Stage) -> None:
    """As after a gateway that was frozen for longer than a lease."""
    stage = memory_stage
    request_id, _, second, [forgetful, other] = await begun(stage, 2)
    edge = stage.edge.instance
    forgetful.node.leases._lose(edge)  # as if it alone had not heard it for so long
    await eventually(lambda: bool(second.waiting))
    for _ in WORDS[2:]:
        second.step()
    heard = await stage.listen(request_id)

    assert (heard.text, heard.error) == ("".join(WORDS), None)
    await eventually(lambda: len(stage.records) == 2)
    rows = [(row.outcome, row.finish_reason, row.error_code) for row in stage.records]
    assert rows == [("migrated", None, "stop_lost"), ("finished", "stop", None)]
    assert stage.records[1].replica == other.instance


async def test_a_replica_whose_edge_is_gone_has_no_second(memory_stage: Stage) -> None:
    stage = memory_stage
    _, _, second, _ = await begun(stage, 2)
    await stage.edge.stop()
    await eventually(lambda: len(stage.records) == 1)

    row = stage.records[0]
    assert (row.outcome, row.finish_reason, row.error_code) == ("cancelled", "cancelled", None)
    assert (row.usage.prompt_tokens, row.usage.completion_tokens) == (7, 2)
    assert len(second.submitted) == 1  # its warm-up


async def test_an_engines_word_that_it_was_cancelled_is_no_reason_to_begin_again(memory_stage: Stage) -> None:
    """The cancel itself may come late, or never, to the gateway: the engine had it."""
    stage = memory_stage
    request_id, first, second, _ = await begun(stage, 2)
    first.cancel(first.running[0].asked.request_id)
    heard = await stage.listen(request_id)

    assert heard.error is not None
    assert heard.error.code == "client_closed_request"
    assert len(second.submitted) == 1  # its warm-up
    await eventually(lambda: len(stage.records) == 1)
    assert stage.records[0].outcome == "cancelled"


async def test_the_answer_of_two_engines_is_cached_as_one(memory_stage: Stage) -> None:
    stage = memory_stage
    request_id, first, second, _ = await begun(stage, 3, sampling=Sampling(temperature=0))
    first.script = Script(error_after=3)
    first.step()
    await eventually(lambda: bool(second.waiting))
    for _ in WORDS[3:]:
        second.step()
    await stage.listen(request_id)
    again = await stage.ask(sampling=Sampling(temperature=0))

    assert again.prologues[0].cache == "exact"
    assert again.text == "".join(WORDS)


async def test_a_client_that_leaves_between_two_replicas_ends_it(memory_stage: Stage) -> None:
    stage = memory_stage
    request_id, first, second, _ = await begun(stage, 2)
    second.script = Script(max_waiting=0)
    first.script = Script(error_after=2)
    first.step()
    await stage.cancel(request_id)
    await stage.listen(request_id)

    await eventually(lambda: len(stage.records) == 1)
    assert stage.records[0].usage.completion_tokens == 2
    assert not second.running
    assert not second.waiting
