"""Gateway, router and engine worker over a real NATS server, with a scripted engine."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any

import pytest

from baton_contracts import subjects
from baton_contracts.frames import Cancel
from baton_contracts.handoffs import Ack
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.prompt import Sampling, Tool
from baton_engine_worker.work import EngineRun
from baton_inference_router.actor import Router
from baton_llm_gateway import actor
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.cached_answer import send_cached
from baton_llm_gateway.own_replicas import OwnReplicas
from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import MODEL, Stage, question
from tests.support.scripted_answer import WORDS, Script
from tests.support.waiting import eventually

ANSWER = "".join(WORDS)


async def test_an_answer_comes_whole_with_its_usage_its_row_and_its_spans(stage: Stage) -> None:
    engine = FakeEngine()
    (worker,) = await stage.whole(engine)

    heard = await stage.ask(prompt=question("one two three four"))

    assert heard.text == ANSWER
    assert heard.token_ids == [1, 2, 3, 4, 5]
    assert len(heard.prologues) == 1
    assert heard.prologues[0].replica == worker.instance
    assert heard.end is not None
    assert heard.end.usage.prompt_tokens == 5  # four words and the role
    assert heard.end.usage.completion_tokens == 5
    await eventually(lambda: len(stage.records) == 1)
    row = stage.records[0]
    assert (row.outcome, row.attempt, row.replica) == ("finished", 1, worker.instance)
    assert (row.usage.prompt_tokens, row.usage.completion_tokens) == (5, 5)
    await eventually(lambda: {span.stop for span in stage.spans.get(heard.request_id, [])} >= {5, 6, 7})
    names = {span.name for span in stage.spans[heard.request_id] if span.stop == 7}
    assert names >= {"hop", "admit", "queue", "prefill", "decode", "first_token", "handle"}


async def test_a_replica_lost_before_its_first_token_is_replaced_and_nothing_is_said_twice(
    stage: Stage,
) -> None:
    engines = [FakeEngine(Script(stall_after=0)), FakeEngine(Script(stall_after=0))]
    workers = await stage.whole(*engines)

    request_id = await stage.send(stage.handoff())
    heard = await stage.listen(request_id, until=lambda heard: bool(heard.prologues))
    first = heard.prologues[0].replica
    lost, sound = (0, 1) if workers[0].instance == first else (1, 0)
    engines[sound].script = Script()
    await workers[lost].vanish()
    heard = await stage.listen(request_id, into=heard)

    assert heard.text == ANSWER
    assert heard.token_ids == [1, 2, 3, 4, 5]
    assert len(heard.prologues) == 1
    assert heard.seconds < 5
    await eventually(lambda: len(stage.records) == 2)
    rows = sorted(stage.records, key=lambda row: row.attempt)
    assert [(row.attempt, row.outcome, row.replica) for row in rows] == [
        (1, "error", first),
        (2, "finished", workers[sound].instance),
    ]
    assert rows[0].error_code == "stop_lost"


async def test_an_engine_error_before_the_first_token_goes_to_the_other_replica(stage: Stage) -> None:
    engines = [FakeEngine(Script(error_after=0), autoplay=False) for _ in range(2)]
    workers = await stage.whole(*engines)

    request_id = await stage.send(stage.handoff())
    await eventually(lambda: any(engine.waiting for engine in engines))
    broken, sound = (0, 1) if engines[0].waiting else (1, 0)
    engines[sound].script = Script()
    engines[broken].step()
    engines[broken].step()
    await eventually(lambda: bool(engines[sound].waiting))
    for _ in WORDS:
        engines[sound].step()
    heard = await stage.listen(request_id)

    assert heard.text == ANSWER
    await eventually(lambda: len(stage.records) == 2)
    assert [(row.attempt, row.outcome, row.replica, row.error_code) for row in stage.records] == [
        (1, "error", workers[broken].instance, "stop_failed"),
        (2, "finished", workers[sound].instance, None),
    ]


async def test_a_replica_lost_after_the_first_token_ends_in_a_typed_error(stage: Stage) -> None:
    engine = FakeEngine(Script(stall_after=2))
    (worker,) = await stage.whole(engine)

    request_id = await stage.send(stage.handoff())
    heard = await stage.listen(request_id, until=lambda heard: len(heard.token_ids) == 2)
    await worker.vanish()
    heard = await stage.listen(request_id, into=heard)

    assert heard.text == "The answer "
    assert heard.error is not None
    assert (heard.error.code, heard.error.stop) == ("stop_lost", "engine_worker")
    await eventually(lambda: len(stage.records) == 1)
    row = stage.records[0]
    assert (row.outcome, row.error_code, row.usage.completion_tokens) == ("error", "stop_lost", 2)


async def test_one_that_did_not_take_it_is_avoided_whichever_router_is_asked_next(
    memory_stage: Stage,
) -> None:
    """The bus takes turns among the routers: the second one has not been kept waiting by that replica."""
    stage = memory_stage
    worker = await stage.worker(FakeEngine())
    mute = ReplicaHeartbeat(
        replica="engine_worker-0", model=MODEL, state="ready", sent_at=time.time(), max_running=8
    )
    handed: list[str] = []
    await stage.sender.subscribe(
        subjects.engine_all(mute.replica), lambda message: handed.append(message.subject)
    )
    routers = [await stage.router(router_dispatch_seconds=0.3) for _ in range(2)]
    await asyncio.gather(stage.guard(), stage.gateway())
    await stage.sender.publish(subjects.replica(MODEL, mute.replica), mute.encode())

    request_id = await stage.send(stage.handoff())
    heard = await stage.listen(request_id)

    assert (heard.text, heard.error) == ("".join(WORDS), None)
    assert handed == [subjects.engine(mute.replica, request_id)]
    await eventually(
        lambda: {"inference_router", "llm_gateway"} <= {s.service for s in stage.spans[request_id]}
    )
    dispatches = [span for span in stage.spans[request_id] if span.name == "dispatch"]
    assert [(span.instance, span.attributes["replica"]) for span in dispatches] == [
        (routers[0].instance, mute.replica),
        (routers[1].instance, worker.instance),
    ]


async def test_exhausted_attempts_give_the_first_error(stage: Stage) -> None:
    engines = [FakeEngine(Script(error_after=0)) for _ in range(2)]
    await stage.whole(*engines)

    heard = await stage.ask()

    assert heard.error is not None
    assert heard.error.code == "stop_failed"
    assert "invalid_logits" in heard.error.message
    assert sum(len(engine.submitted) for engine in engines) == 2 + 2  # each warmed up, each tried once


async def test_no_router_is_a_503_within_100_ms(stage: Stage) -> None:
    await asyncio.gather(stage.guard(), stage.gateway())

    answers = [await stage.ask() for _ in range(5)]
    heard = answers[-1]

    assert heard.error is not None
    assert (heard.error.code, heard.error.stop) == ("no_responder", "inference_router")
    assert heard.error.status == 503
    assert median(answer.seconds for answer in answers) < 0.1
    assert stage.records == []


async def test_no_replica_is_a_503_with_a_time_to_come_back(stage: Stage) -> None:
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway())

    answers = [await stage.ask() for _ in range(5)]
    heard = answers[-1]

    assert heard.error is not None
    assert (heard.error.code, heard.error.status) == ("no_ready_replica", 503)
    assert heard.error.retry_after_seconds is not None
    assert 8 <= heard.error.retry_after_seconds <= 12
    assert median(answer.seconds for answer in answers) < 0.1


async def test_no_guard_is_a_503_naming_it(stage: Stage) -> None:
    await asyncio.gather(stage.router(), stage.gateway())

    answers = [await stage.ask() for _ in range(5)]
    heard = answers[-1]

    assert heard.error is not None
    assert (heard.error.code, heard.error.stop) == ("no_responder", "output_guardrails")
    assert median(answer.seconds for answer in answers) < 0.1


async def test_a_prompt_over_the_context_is_the_clients_fault_and_tried_once(stage: Stage) -> None:
    engines = [FakeEngine(Script(context=20)) for _ in range(2)]
    await stage.whole(*engines)

    heard = await stage.ask(prompt=question("word " * 30), sampling=Sampling(max_tokens=7))

    assert heard.error is not None
    assert (heard.error.code, heard.error.status) == ("context_length_exceeded", 400)
    assert "31 in the prompt" in heard.error.message
    assert "7 for the answer" in heard.error.message
    await eventually(lambda: {span.stop for span in stage.spans.get(heard.request_id, [])} >= {5, 6})
    refusals = [s for s in stage.spans[heard.request_id] if s.stop == 6 and s.name == "dispatch"]
    assert len(refusals) == 1


async def test_full_replicas_refuse_fast_and_the_free_one_is_found(stage: Stage) -> None:
    full = Script(max_running=1, max_waiting=1, stall_after=0)
    engines = [FakeEngine(full), FakeEngine(full)]
    await stage.whole(*engines)

    held = await stage.fill(*engines)
    refused = [await stage.ask() for _ in range(20)]

    assert {heard.error.code for heard in refused if heard.error} == {"queue_full"}
    assert median(heard.seconds for heard in refused) < 0.05
    assert all(1 <= (heard.error.retry_after_seconds or 0) <= 30 for heard in refused if heard.error)
    for request_id in held:
        await stage.cancel(request_id)
    await eventually(lambda: not any(e.running or e.waiting for e in engines))


async def test_the_same_handoff_twice_is_one_answer(stage: Stage) -> None:
    engine = FakeEngine(autoplay=False)
    await stage.whole(engine)

    handoff = stage.handoff()
    request_id = await stage.send(handoff)
    await eventually(lambda: len(engine.submitted) == 2)
    raw = await stage.sender.request(subjects.gateway(request_id), handoff.encode(), timeout=20)
    assert Ack.decode(raw).verdict == "held"
    for _ in WORDS:
        engine.step()
    heard = await stage.listen(request_id)

    assert heard.text == ANSWER
    assert len(engine.submitted) == 2  # the warm-up and one
    await eventually(lambda: len(stage.records) == 1)


async def test_a_hit_of_the_cache_needs_no_engine_and_is_booked_as_one(stage: Stage) -> None:
    engine = FakeEngine()
    await stage.whole(engine)

    greedy = Sampling(temperature=0)
    first = await stage.ask(sampling=greedy)
    await eventually(lambda: len(stage.records) == 1)
    second = await stage.ask(sampling=greedy)
    third = await stage.ask(sampling=greedy, use_cache=False)

    assert first.text == second.text == third.text == ANSWER
    assert [heard.prologues[0].cache for heard in (first, second, third)] == ["none", "exact", "none"]
    assert second.prologues[0].replica == "cache"
    assert second.end is not None
    assert second.end.usage.completion_tokens == 5
    assert len(engine.submitted) == 1 + 2
    await eventually(lambda: len(stage.records) == 3)
    assert [row.outcome for row in stage.records] == ["finished", "cache_hit", "finished"]


async def test_a_hit_repeats_thinking_and_calls(stage: Stage) -> None:
    words = ("<think>Hm.</think>So:", '<tool_call>{"name": "f", "argu', 'ments": {"a": 1}}</tool_call>')
    engine = FakeEngine(Script(words=words))
    engine.tokenizer.chat_template_source = "<think>"
    await stage.whole(engine)
    prompt = question(tools=(Tool(name="f"),))

    first = await stage.ask(prompt=prompt, sampling=Sampling(temperature=0))
    await eventually(lambda: len(stage.records) == 1)
    second = await stage.ask(prompt=prompt, sampling=Sampling(temperature=0))

    assert [heard.prologues[0].cache for heard in (first, second)] == ["none", "exact"]
    for heard in (first, second):
        assert (heard.reasoning, heard.text) == ("Hm.", "So:")
        assert [(call.name, call.arguments, call.is_whole) for call in heard.calls.values()] == [
            ("f", '{"a": 1}', True)
        ]
        assert heard.end is not None
        assert heard.end.finish_reason == "tool_calls"
    assert first.calls == second.calls


async def test_several_answers_are_billed_together_and_not_repeated(stage: Stage) -> None:
    engine = FakeEngine()
    await stage.whole(engine)
    for _ in range(2):
        heard = await stage.ask(sampling=Sampling(temperature=0, n=3))
        assert heard.prologues[0].num_answers == 3
        assert heard.end is not None
        assert heard.end.reasons == ("stop",) * 3
        assert heard.end.usage.completion_tokens == 3 * len(WORDS)
        assert [heard.prologues[0].cache, heard.text] == ["none", "".join(word * 3 for word in WORDS)]
    await eventually(lambda: len(stage.records) == 2)
    assert [row.usage.completion_tokens for row in stage.records] == [3 * len(WORDS)] * 2


async def test_a_draining_replica_finishes_what_it_holds_and_takes_nothing_new(stage: Stage) -> None:
    engines = [FakeEngine(autoplay=False), FakeEngine(autoplay=False)]
    workers = await stage.whole(*engines)

    request_id = await stage.send(stage.handoff())
    heard = await stage.listen(request_id, until=lambda heard: bool(heard.prologues))
    mine = next(w for w in workers if w.instance == heard.prologues[0].replica)
    engine, other = (engines[0], engines[1]) if mine is workers[0] else (engines[1], engines[0])
    draining = asyncio.create_task(mine.node.drain(5))
    await eventually(lambda: mine.node.state == "draining")
    later = [await stage.send(stage.handoff()) for _ in range(3)]
    await eventually(lambda: len(other.submitted) == 1 + 3)
    for _ in WORDS:
        engine.step()
        other.step()
    heard = await stage.listen(request_id, into=heard)
    await draining

    assert heard.text == ANSWER
    assert len(engine.submitted) == 1 + 1
    for each in later:
        assert (await stage.listen(each)).text == ANSWER


async def test_a_cancel_of_one_attempt_does_not_end_the_request(stage: Stage) -> None:
    engine = FakeEngine(autoplay=False)
    await stage.whole(engine)

    request_id = await stage.send(stage.handoff())
    await eventually(lambda: len(engine.submitted) == 2)
    other = Cancel(request_id=request_id, reason="superseded", attempt=2)
    await stage.edge.bus.publish(subjects.cancel(request_id), other.encode())
    for _ in WORDS:
        engine.step()

    assert (await stage.listen(request_id)).text == ANSWER


@pytest.fixture
def routers_die_once_a_replica_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The word that the replica took the request never reaches the gateway."""
    dispatch = Router._dispatch

    async def dispatch_and_die(self: Router, *what: Any) -> None:
        await dispatch(self, *what)
        await asyncio.Event().wait()

    monkeypatch.setattr(Router, "_dispatch", dispatch_and_die)
    monkeypatch.setattr("baton_llm_gateway.own_replicas.ROUTE_ACK_SECONDS", 0.3)


@pytest.mark.usefixtures("routers_die_once_a_replica_has_it")
async def test_a_router_that_dies_with_its_word_unsaid_breaks_no_answer(stage: Stage) -> None:
    (worker,) = await stage.whole(FakeEngine())

    heard = await stage.ask()

    assert heard.text == ANSWER
    assert heard.end is not None
    await eventually(lambda: len(stage.records) == 1)
    row = stage.records[0]
    assert (row.outcome, row.attempt, row.replica) == ("finished", 1, worker.instance)
    assert row.usage == heard.end.usage


@pytest.mark.usefixtures("routers_die_once_a_replica_has_it")
async def test_a_client_that_leaves_before_that_word_is_missed_has_its_row(stage: Stage) -> None:
    engine = FakeEngine(autoplay=False)
    (worker,) = await stage.whole(engine)

    request_id = await stage.send(stage.handoff())
    await eventually(lambda: len(engine.submitted) == 2)
    engine.step()
    await stage.listen(request_id, until=lambda heard: bool(heard.pieces))
    await stage.cancel(request_id)

    await eventually(lambda: len(stage.records) == 1)
    row = stage.records[0]
    assert (row.outcome, row.replica, row.usage.completion_tokens) == ("cancelled", worker.instance, 1)


@pytest.mark.usefixtures("routers_die_once_a_replica_has_it")
async def test_a_router_that_dies_with_nothing_taken_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(self: Router, *what: Any) -> None:
        del self, what
        await asyncio.Event().wait()

    monkeypatch.setattr(Router, "_dispatch", die)
    await stage.whole(FakeEngine())

    heard = await stage.ask()

    assert heard.error is not None
    assert (heard.error.code, heard.error.stop) == ("stop_unresponsive", "inference_router")
    assert stage.records == []


async def test_an_engine_that_missed_the_cancel_is_told_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def misses_the_first(self: EngineRun, cancel: Cancel) -> int | None:
        return None if cancel.attempt is None else await on_cancel(self, cancel)

    on_cancel = EngineRun._on_cancel
    monkeypatch.setattr(EngineRun, "_on_cancel", misses_the_first)
    monkeypatch.setattr("baton_llm_gateway.listening.LAST_WORD_SECONDS", 0.1)
    engine = FakeEngine(autoplay=False)
    (worker,) = await stage.whole(engine)

    request_id = await stage.send(stage.handoff())
    await eventually(lambda: len(engine.submitted) == 2)
    engine.step()
    await stage.listen(request_id, until=lambda heard: bool(heard.pieces))
    await stage.cancel(request_id)

    await eventually(lambda: worker.node.num_held == 0)
    await eventually(lambda: bool(stage.records))
    assert [(row.outcome, row.usage.completion_tokens) for row in stage.records] == [("cancelled", 1)]


async def test_a_guard_that_dies_with_a_short_answer_in_hand_is_told_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = OwnReplicas.call

    async def call_past_a_dead_guard(self: OwnReplicas, attempt: Attempt) -> None:
        await guard.vanish()
        await call(self, attempt)

    monkeypatch.setattr(OwnReplicas, "call", call_past_a_dead_guard)
    await stage.worker(FakeEngine())
    guard, _, _ = await asyncio.gather(stage.guard(), stage.router(), stage.gateway())

    heard = await stage.ask()

    assert heard.error is not None
    assert (heard.error.code, heard.error.stop) == ("stop_lost", "output_guardrails")
    assert heard.seconds < 6
    await eventually(lambda: [row.outcome for row in stage.records] == ["finished"])


async def test_a_guard_that_dies_with_a_hit_of_the_cache_in_hand_is_told_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send_past_a_dead_guard(*arguments: Any, **named: Any) -> None:
        await guard.vanish()
        await send_cached(*arguments, **named)

    await stage.worker(FakeEngine())
    guard, _, _ = await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    first = await stage.ask(sampling=Sampling(temperature=0))
    assert first.error is None
    await eventually(lambda: len(stage.records) == 1)
    monkeypatch.setattr(actor, "send_cached", send_past_a_dead_guard)

    heard = await stage.ask(sampling=Sampling(temperature=0))

    assert heard.error is not None
    assert (heard.error.code, heard.error.stop) == ("stop_lost", "output_guardrails")
    assert heard.seconds < 6
    await eventually(lambda: [row.outcome for row in stage.records] == ["finished", "cache_hit"])


SMALL, LARGE = "smollm2-135m", "qwen2.5-coder-0.5b"


async def test_auto_goes_to_the_model_that_has_a_replica_and_says_why(stage: Stage) -> None:
    await stage.worker(FakeEngine(), model=LARGE)
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway())

    heard = await stage.ask(model="auto")
    named = await stage.ask(model=SMALL)

    assert heard.text == ANSWER
    assert heard.prologues[0].model == LARGE
    assert named.error is not None
    assert named.error.code == "no_ready_replica"
    await eventually(lambda: any(s.stop == 5 and s.name == "handle" for s in stage.spans[heard.request_id]))
    handle = next(s for s in stage.spans[heard.request_id] if s.stop == 5 and s.name == "handle")
    assert handle.attributes["route"] == "easy_fallback"
    assert f"{SMALL} has no ready replica" in str(handle.attributes["route_reason"])


async def test_auto_falls_back_at_once_when_its_choice_is_full(stage: Stage) -> None:
    full = FakeEngine(Script(max_running=1, max_waiting=1, stall_after=0))
    await stage.worker(full, model=SMALL)
    await stage.worker(FakeEngine(), model=LARGE)
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    held = await stage.fill(full)

    answers = [await stage.ask(model="auto") for _ in range(5)]

    for heard in answers:
        assert heard.text == ANSWER
        assert [(prologue.model, prologue.attempt) for prologue in heard.prologues] == [(LARGE, 1)]
    assert median(heard.seconds for heard in answers) < 0.5
    await eventually(lambda: len(stage.records) == len(answers))
    assert {(row.model, row.attempt) for row in stage.records} == {(LARGE, 2)}
    for request_id in held:
        await stage.cancel(request_id)
        await stage.listen(request_id)
