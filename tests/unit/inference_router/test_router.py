"""The router on the in-memory bus, with replicas that answer as they are told."""

from __future__ import annotations

from baton_common.bus import BusMessage
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.tokens import TokensReply
from baton_inference_router.prefix_index import block_keys
from baton_inference_router.prompt_reading import MAX_IDS_PASSED_ON
from tests.support.router_bench import (
    TOKENS,
    answer_tokens,
    ask,
    handoff,
    refuses,
    router,
    takes,
)


async def test_the_replica_that_took_it_is_named_with_its_queue_length() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-busy", takes("r-busy"), num_running=2)
        await replicas.add("r-idle", takes("r-idle", waiting=1, running=0))
        asked = handoff()
        ack = await ask(bus, asked)
        ((_, given),) = replicas.taken

    assert (ack.verdict, ack.instance, ack.waiting) == ("held", "r-idle", 1)
    assert given.work == asked.work
    assert (given.gateway, given.guard) == ("g-1", "o-1")
    assert given.envelope.request_id == asked.envelope.request_id


async def test_refused_means_the_next_best_and_the_table_learns() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", refuses("r-1", "queue_full", waiting=4, running=4))
        await replicas.add("r-2", takes("r-2", waiting=1, running=1), num_running=1)
        first, second = await ask(bus), await ask(bus)

    assert (first.instance, second.instance) == ("r-2", "r-2")
    assert [name for name, _ in replicas.taken] == ["r-1", "r-2", "r-2"]


async def test_nobody_there_means_the_next_best_and_never_that_one_again() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", None)
        await replicas.add("r-2", takes("r-2"), num_running=1)
        acks = [await ask(bus) for _ in range(3)]
        left = replicas.table.candidates("m")

    assert {ack.instance for ack in acks} == {"r-2"}
    assert [each.replica for each in left] == ["r-2"]


async def test_the_clients_own_fault_is_passed_on_and_not_tried_elsewhere() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", refuses("r-1", "context_length_exceeded"))
        await replicas.add("r-2", takes("r-2"), num_running=1)
        ack = await ask(bus)

    assert ack.verdict == "refused"
    assert ack.error
    assert (ack.error.code, ack.error.stop) == ("context_length_exceeded", "engine_worker")
    assert len(replicas.taken) == 1


async def test_all_refuse_for_want_of_memory() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", refuses("r-1", "kv_exhausted"))
        await replicas.add("r-2", refuses("r-2", "kv_exhausted"))
        ack = await ask(bus)

    assert ack.error
    assert (ack.error.code, ack.error.status) == ("kv_exhausted", 503)
    assert len(replicas.taken) == 2


async def test_full_replicas_are_not_even_asked() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", takes("r-1"), num_running=4, num_waiting=4)
        ack = await ask(bus)

    assert ack.error
    assert ack.error.code == "queue_full"
    assert replicas.taken == []


async def test_where_the_request_failed_already_it_is_not_sent_again() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", takes("r-1"))
        await replicas.add("r-2", takes("r-2"), num_running=3)
        second = await ask(bus, handoff(avoid_replicas=("r-1",)))
        third = await ask(bus, handoff(avoid_replicas=("r-1", "r-2")))

    assert second.instance == "r-2"
    assert third.error
    assert third.error.code == "no_ready_replica"


async def test_one_that_does_not_answer_may_have_taken_it_so_nobody_else_is_asked() -> None:
    async with router(router_dispatch_seconds=0.05) as (bus, replicas):
        await replicas.add("r-1", lambda _: None)
        await replicas.add("r-2", takes("r-2"), num_running=1)
        first, second = await ask(bus), await ask(bus)
        reserved = replicas.table.num_reserved

    assert first.error
    assert (first.error.code, first.error.stop) == ("stop_unresponsive", "engine_worker")
    assert first.error.replica == "r-1"
    assert second.instance == "r-2"
    assert reserved == 1  # the second one's, until the next heartbeat


async def test_one_that_answers_what_is_no_ack_is_named() -> None:
    async with router() as (bus, replicas):
        name = await replicas.add("r-1", None)

        def on_message(message: BusMessage) -> None:
            spawn(bus.publish(message.reply, b"what?"))

        await bus.subscribe(subjects.engine_all(name), on_message)
        ack = await ask(bus)

    assert ack.error
    assert (ack.error.code, ack.error.replica) == ("stop_unresponsive", "r-1")


async def test_a_replica_is_not_to_blame_for_a_deadline_that_was_near() -> None:
    async with router() as (bus, replicas):
        await replicas.add("r-1", lambda _: None)
        ack = await ask(bus, handoff(seconds=0.05))
        left = replicas.table.candidates("m")

    assert ack.error
    assert (ack.error.code, ack.error.replica) == ("deadline_exceeded", None)
    assert [(each.replica, each.reserved) for each in left] == [("r-1", 0)]


async def test_with_a_choice_the_prompts_tokens_are_asked_once_and_travel_on() -> None:
    async with router() as (bus, replicas):
        asked = await answer_tokens(bus, TOKENS)
        await replicas.add("r-1", refuses("r-1", "queue_full"))
        await replicas.add("r-2", takes("r-2"), num_running=1)
        request = handoff()
        ack = await ask(bus, request)

    assert ack.instance == "r-2"
    assert asked == [subjects.tokens("m", request.envelope.request_id)]
    for _, given in replicas.taken:
        assert (given.work.prompt_token_ids, given.work.prompt_tokenizer) == (TOKENS.token_ids, "t")
        assert given.work.prompt == request.work.prompt


async def test_ids_that_might_not_fit_beside_their_text_stay_here() -> None:
    many = MAX_IDS_PASSED_ON + 1
    async with router() as (bus, replicas):
        await answer_tokens(bus, TOKENS.model_copy(update={"num_tokens": many, "token_ids": (7,) * many}))
        await replicas.add("r-1", takes("r-1"))
        await replicas.add("r-2", takes("r-2"))
        await ask(bus)
    (_, given), *_ = replicas.taken
    assert (given.work.prompt_token_ids, given.work.prompt_tokenizer) == ((), "")


async def test_without_a_choice_nobody_is_asked() -> None:
    async with router() as (bus, replicas):
        asked = await answer_tokens(bus, TOKENS)
        await replicas.add("r-1", takes("r-1"))
        await replicas.add("r-full", takes("r-full"), num_running=8)
        await ask(bus)
        await ask(bus, handoff(avoid_replicas=("r-1",)))
    async with router(router_prefix_aware=False) as (bus, replicas):
        asked += await answer_tokens(bus, TOKENS)
        await replicas.add("r-1", takes("r-1"))
        await replicas.add("r-2", takes("r-2"))
        await ask(bus)

    assert asked == []


async def test_of_a_greeting_nobody_is_asked_but_of_what_it_has_grown_to() -> None:
    async with router() as (bus, replicas):
        asked = await answer_tokens(bus, TOKENS)
        for name in ("r-1", "r-2"):
            await replicas.add(name, takes(name))
        await ask(bus, handoff(text="x" * 127))
        assert asked == []
        await ask(bus, handoff(text="x" * 128))
        resumed = handoff(text="hi")
        work = resumed.work.model_copy(update={"resume_token_ids": tuple(range(64))})
        await ask(bus, resumed.model_copy(update={"work": work}))

    assert len(asked) == 2


async def test_no_answer_or_an_error_means_that_load_decides() -> None:
    error = TokensReply(error=ErrorBody(code="invalid_value", message="no such role"))
    for reply in (None, error):
        async with router(router_tokens_seconds=0.05) as (bus, replicas):
            asked = await answer_tokens(bus, reply)
            await replicas.add("r-busy", takes("r-busy"), num_running=2)
            await replicas.add("r-idle", takes("r-idle"))
            ack = await ask(bus)
            assert (ack.instance, len(asked)) == ("r-idle", 1)
            assert replicas.taken[0][1].work.prompt_token_ids == ()


async def test_like_requests_of_one_burst_meet_and_those_refused_leave_no_trace() -> None:
    async with router() as (bus, replicas):
        hashes = tuple(f"{number:016x}" + "0" * 48 for number in range(1, 207))
        await answer_tokens(bus, TOKENS.model_copy(update={"num_tokens": 3300, "block_hashes": hashes}))
        await replicas.add("r-1", refuses("r-1", "queue_full"), kv_epoch="e")
        await replicas.add("r-2", takes("r-2", waiting=0, running=1), num_running=1, kv_epoch="e")
        await replicas.add("r-3", takes("r-3", waiting=0, running=3), num_running=2, kv_epoch="e")
        first = await ask(bus)
        second = await ask(bus)
        expected = [replicas.index.num_cached(name, block_keys(hashes)) for name in ("r-1", "r-2", "r-3")]

    assert expected == [0, 206, 0]
    assert (first.instance, second.instance) == ("r-2", "r-2")
    assert [name for name, _ in replicas.taken][:2] == ["r-1", "r-2"]
