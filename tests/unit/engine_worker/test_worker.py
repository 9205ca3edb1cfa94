"""The worker on the in-memory bus with the real engine's loop and thread, and a tiny random model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.frames import Cancel, CancelAck, Data, End, Error, Prologue, decode_frame
from baton_contracts.handoffs import Ack, EngineHandoff, EngineWork
from baton_contracts.heartbeats import Lease
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import Chunk, Message, Part, Prompt, Sampling, StructuredOutput, Tool
from baton_contracts.spans import Span, SpanBatch
from baton_engine import AsyncEngine, InvalidParameter
from baton_engine_worker import __main__ as worker_main
from baton_engine_worker import grammar_wait, lifecycle
from baton_engine_worker.__main__ import wire
from baton_engine_worker.answer_frames import AnswerFrames
from baton_engine_worker.lifecycle import EXIT_ENGINE_FAILED, leave_when_failed
from baton_engine_worker.settings import Settings
from baton_engine_worker.work import EngineRun
from tests.support.fake_engine import FakeEngine
from tests.support.scripted_answer import Script
from tests.support.tiny_model import tiny_config, tiny_parts
from tests.support.waiting import eventually

MODEL = "tiny"
GREEDY = Sampling(temperature=0, max_tokens=12, ignore_eos=True)


class Bench:
    def __init__(self, bus: MemoryBus, node: Node, engine: Any) -> None:
        self.bus, self.node, self.engine = bus, node, engine
        self.frames: asyncio.Queue[Any] = asyncio.Queue()
        self.spans: asyncio.Queue[tuple[Span, ...]] = asyncio.Queue()

    async def listen(self) -> None:
        await self.bus.subscribe(
            f"{subjects.ROOT}.frames.*.*.*",
            lambda message: self.frames.put_nowait(decode_frame(message.payload)),
        )
        await self.bus.subscribe(subjects.TRACE_ALL, self._on_spans)

    def _on_spans(self, message: BusMessage) -> None:
        self.spans.put_nowait(SpanBatch.decode(message.payload).spans)

    def handoff(self, text: str = "hello", sampling: Sampling = GREEDY, **changes: Any) -> EngineHandoff:
        now = time.time()
        prompt = Prompt(messages=(Message(role="user", parts=(Part(text=text),)),), **changes)
        envelope = Envelope(
            request_id=new_request_id(),
            run_id="00000000",
            tenant=Tenant(tenant_id="t", key_id="k"),
            edge="edge_api-1",
            conversation_id="c",
            deadline=now + 20,
            sent_at=now,
        )
        work = EngineWork(model=MODEL, prompt=prompt, sampling=sampling)
        return EngineHandoff(
            envelope=envelope, work=work, gateway="llm_gateway-1", guard="guard-1", router="router-1"
        )

    async def hand(self, handoff: EngineHandoff) -> Ack:
        subject = subjects.engine(self.node.instance, handoff.envelope.request_id)
        return Ack.decode(await self.bus.request(subject, handoff.encode(), timeout=5))

    async def lose(self, instance: str) -> None:
        """Its process says that it ends."""
        service = instance.split("-", maxsplit=1)[0].replace("guard", "output_guardrails")
        lease = Lease.model_validate({"service": service, "instance": instance, "state": "gone"})
        await self.bus.publish(subjects.lease(instance), lease.encode())

    async def answer(self) -> list[Any]:
        """All frames up to the last one."""
        got: list[Any] = []
        async with asyncio.timeout(10):
            while not got or not isinstance(got[-1], End | Error):
                got.append(await self.frames.get())
        return got

    async def cancel(self, request_id: str, attempt: int | None = None) -> list[CancelAck]:
        cancel = Cancel(request_id=request_id, reason="client_disconnected", attempt=attempt)
        raw = await self.bus.request_many(subjects.cancel(request_id), cancel.encode(), timeout=5, enough=1)
        return [CancelAck.decode(each) for each in raw]


@asynccontextmanager
async def worker(engine: Any = None, **settings: Any) -> AsyncGenerator[Bench, None]:
    bus = MemoryBus()
    node = Node(bus, "engine_worker")
    engine = engine or AsyncEngine(tiny_config(), tiny_parts())
    bench = Bench(bus, node, engine)
    await bench.listen()
    await node.start()
    try:
        async with wire(Settings(model=MODEL, **settings), engine, node, bus):
            await node.become_ready()
            yield bench
    finally:
        await node.stop()


async def test_an_answer_is_a_prologue_a_frame_a_step_and_an_end() -> None:
    async with worker() as bench:
        chunks = (
            Chunk(chunk_id="a", citation=1, source="a.md", score=1, quarantined=True),
            Chunk(chunk_id="b", citation=2, source="b.md", score=1),
        )
        handoff = bench.handoff(chunks=chunks)
        ack = await bench.hand(handoff)
        frames = await bench.answer()
        spans = {span.name: span for span in await bench.spans.get()}

    assert (ack.verdict, ack.instance, ack.waiting) == ("held", bench.node.instance, 1)
    prologue, *data, end = frames
    assert isinstance(prologue, Prologue)
    assert (prologue.model, prologue.replica, prologue.citations) == (
        MODEL,
        bench.node.instance,
        ("", "b.md"),
    )
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert all(isinstance(frame, Data) for frame in data)
    assert sum(len(frame.token_ids) for frame in data) == 12
    assert isinstance(end, End)
    assert (end.finish_reason, end.usage.completion_tokens) == ("length", 12)
    assert end.usage.prompt_tokens == len(b"user: hello\nassistant: ") + 1
    assert end.blocks_freed == 3  # 24 + 11 tokens fed, in blocks of 16
    assert set(spans) >= {"hop", "admit", "queue", "prefill", "decode", "first_token", "flush", "handle"}
    handle = spans["handle"]
    assert handle.attributes["prompt_tokens"] == 24
    assert handle.attributes["finish_reason"] == "length"


async def test_its_spans_leave_no_gap() -> None:
    """The best of five: a busy machine may make one wait between two of its spans."""
    gaps: list[float] = []
    async with worker() as bench:
        for _ in range(5):
            await bench.hand(bench.handoff())
            await bench.answer()
            spans = {span.name: span for span in await bench.spans.get()}
            chain = [spans[name] for name in ("admit", "queue", "prefill", "decode", "flush")]
            gaps.append(spans["handle"].duration - sum(span.duration for span in chain))
    assert min(gaps) < 0.001


async def test_greedy_answers_are_the_same_alone_and_together() -> None:
    async with worker() as bench:
        await bench.hand(bench.handoff())
        alone = "".join(frame.text for frame in await bench.answer() if isinstance(frame, Data))
        handoffs = [bench.handoff() for _ in range(4)]
        await asyncio.gather(*(bench.hand(each) for each in handoffs))
        texts: dict[str, str] = {}
        ended = 0
        async with asyncio.timeout(10):
            while ended < 4:
                frame = await bench.frames.get()
                if isinstance(frame, Data):
                    texts[frame.request_id] = texts.get(frame.request_id, "") + frame.text
                ended += isinstance(frame, End)

    assert set(texts.values()) == {alone}
    assert len(texts) == 4


@pytest.mark.parametrize(
    ("text", "sampling", "code", "param"),
    [
        ("x" * 300, GREEDY, "context_length_exceeded", "messages"),
        ("x", Sampling(max_tokens=250), "context_length_exceeded", "messages"),
        ("x", Sampling(stop_token_ids=(9999,)), "invalid_value", "stop_token_ids"),
        ("x", Sampling(max_tokens=2, min_tokens=3), "invalid_value", "min_tokens"),
        ("x", Sampling(stop=("",)), "invalid_value", "stop"),
        ("x", Sampling(n=65), "invalid_value", "n"),
        ("x", Sampling(logprobs=21), "invalid_value", "top_logprobs"),
        ("x", Sampling(logit_bias={264: 1.0}), "invalid_value", "logit_bias"),
        ("x", Sampling(allowed_token_ids=(-1,)), "invalid_value", "allowed_token_ids"),
    ],
)
async def test_what_can_not_be_served_is_refused_in_the_ack(
    text: str, sampling: Sampling, code: str, param: str
) -> None:
    async with worker() as bench:
        ack = await bench.hand(bench.handoff(text, sampling))
        assert ack.verdict == "refused"
        assert ack.error
        assert (ack.error.code, ack.error.param) == (code, param)
        assert (ack.waiting, ack.running) == (0, 0)
        assert bench.frames.empty()


async def test_without_max_tokens_the_answer_ends_at_the_default_or_at_the_context() -> None:
    async with worker(default_max_tokens=5) as bench:
        await bench.hand(bench.handoff(sampling=Sampling(temperature=0, ignore_eos=True)))
        end = (await bench.answer())[-1]
        assert end.usage.completion_tokens == 5
        await bench.hand(bench.handoff("x" * 235, Sampling(temperature=0, ignore_eos=True)))
        end = (await bench.answer())[-1]
        assert end.usage.prompt_tokens + end.usage.completion_tokens == 256
        assert end.finish_reason == "length"


async def test_a_cancel_is_acked_with_the_blocks_and_ends_the_stream() -> None:
    async with worker() as bench:
        handoff = bench.handoff(sampling=Sampling(temperature=0, max_tokens=200, ignore_eos=True))
        await bench.hand(handoff)
        while not isinstance(await bench.frames.get(), Data):
            pass
        (ack,) = await bench.cancel(handoff.envelope.request_id)
        frames = await bench.answer()
        stats = bench.engine.stats()

    end = frames[-1]
    assert end.finish_reason == "cancelled"
    assert (ack.stop, ack.blocks_freed) == ("engine_worker", end.blocks_freed)
    assert end.blocks_freed >= 2
    assert (stats.running, stats.waiting, stats.kv_blocks_held) == (0, 0, 0)


async def test_several_answers_are_one_request_with_one_end() -> None:
    sampling = Sampling(temperature=1, seed=3, max_tokens=9, ignore_eos=True, n=3)
    async with worker() as bench:
        await bench.hand(bench.handoff(sampling=sampling))
        prologue, *data, end = await bench.answer()
        spans = {span.name: span for span in await bench.spans.get()}

    assert prologue.num_answers == 3
    tokens = {index: [t for f in data if f.index == index for t in f.token_ids] for index in range(3)}
    assert [len(ids) for ids in tokens.values()] == [9, 9, 9]
    assert len({tuple(ids) for ids in tokens.values()}) == 3
    assert end.reasons == ("length",) * 3
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (24, 27)
    assert spans["handle"].attributes["completion_tokens"] == 27


async def test_a_cancel_ends_all_answers_of_a_request() -> None:
    async with worker() as bench:
        sampling = Sampling(temperature=1, max_tokens=200, ignore_eos=True, n=3)
        handoff = bench.handoff(sampling=sampling)
        await bench.hand(handoff)
        seen: set[int] = set()
        while seen != {0, 1, 2}:
            frame = await bench.frames.get()
            if isinstance(frame, Data):
                seen.add(frame.index)
        (ack,) = await bench.cancel(handoff.envelope.request_id)
        *_, end = await bench.answer()
        stats = bench.engine.stats()

    assert end.reasons == ("cancelled",)
    assert ack.blocks_freed == end.blocks_freed
    assert end.usage.completion_tokens >= 3
    assert (stats.running, stats.waiting, stats.kv_blocks_held) == (0, 0, 0)


async def test_a_cancel_of_another_attempt_does_not_stop_this_one() -> None:
    engine = FakeEngine(autoplay=False)
    async with worker(engine) as bench:
        handoff = bench.handoff()
        await bench.hand(handoff)
        (ack,) = await bench.cancel(handoff.envelope.request_id, attempt=2)
        assert ack.blocks_freed is None
        assert len(engine.waiting) == 1
        (ack,) = await bench.cancel(handoff.envelope.request_id, attempt=1)
        assert ack.blocks_freed == 0
        assert engine.waiting == []


async def test_the_same_handoff_again_is_held_once() -> None:
    engine = FakeEngine(autoplay=False)
    async with worker(engine) as bench:
        handoff = bench.handoff()
        first, second = await bench.hand(handoff), await bench.hand(handoff)
        assert (first.verdict, second.verdict) == ("held", "held")
        assert len(engine.waiting) == 1


async def test_an_error_of_one_request_is_not_final_and_carries_what_was_used() -> None:
    engine = FakeEngine(Script(error_after=2))
    async with worker(engine) as bench:
        await bench.hand(bench.handoff())
        last = (await bench.answer())[-1]

    assert isinstance(last, Error)
    assert not last.final
    assert (last.error.code, last.seq) == ("stop_failed", 3)
    assert last.usage
    assert last.usage.completion_tokens == 2


async def test_a_bug_on_the_way_out_is_an_error_for_the_gateway_and_ends_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(answers: AnswerFrames) -> End:
        raise RuntimeError(answers.usage())

    monkeypatch.setattr(AnswerFrames, "end", broken)
    async with worker() as bench:
        await bench.hand(bench.handoff())
        last = (await bench.answer())[-1]
        assert bench.engine.stats().running == 0

    assert isinstance(last, Error)
    assert (last.final, last.error.code) == (False, "stop_failed")


async def test_a_full_engine_says_how_long_its_queue_is() -> None:
    engine = FakeEngine(Script(max_running=1, max_waiting=2), autoplay=False)
    async with worker(engine) as bench:
        acks = [await bench.hand(bench.handoff()) for _ in range(3)]

    assert [(ack.verdict, ack.waiting) for ack in acks] == [("held", 1), ("held", 2), ("refused", 2)]
    assert acks[2].error
    assert acks[2].error.code == "queue_full"


JSON = Sampling(max_tokens=5, structured=StructuredOutput(kind="json_object", param="response_format"))


async def test_a_structure_is_ready_before_the_engine_has_the_request() -> None:
    engine = FakeEngine()
    async with worker(engine) as bench:
        ack = await bench.hand(bench.handoff(sampling=JSON))
        assert (ack.verdict, len(engine.grammars)) == ("held", 1)
        asked = engine.submitted[-1].sampling.structured
        assert asked is not None
        assert (asked.json_object, asked.param) == (True, "response_format")
        await bench.hand(bench.handoff())
        assert len(engine.grammars) == 1


async def test_a_structure_that_is_wrong_is_refused_in_the_ack() -> None:
    engine = FakeEngine()
    engine.grammars_wait = True
    async with worker(engine) as bench:
        handing = asyncio.create_task(bench.hand(bench.handoff(sampling=JSON)))
        await eventually(lambda: len(engine.grammars) == 1)
        engine.grammars[0].set_exception(InvalidParameter("response_format", "the schema is recursive"))
        ack = await handing
        assert ack.error
        assert (ack.error.code, ack.error.param) == ("invalid_value", "response_format")
        assert len(engine.submitted) == 1  # the warm-up


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_wait, "SECONDS_BEFORE_THE_ACK", 0.01)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("strict", [False, True])
async def test_only_a_strict_schema_of_a_free_call_is_refused_when_it_can_not_be_enforced(
    strict: bool,
) -> None:
    schema = '{"type":"object","properties":{"a":{"type":"integer"}}}'
    engine = FakeEngine()
    engine.grammars_wait = True
    async with worker(engine) as bench:
        handoff = bench.handoff("x")
        tools = (Tool(name="add", parameters=schema, strict=strict),)
        prompt = handoff.work.prompt.model_copy(update={"tools": tools})
        work = handoff.work.model_copy(update={"prompt": prompt})
        handing = asyncio.create_task(bench.hand(handoff.model_copy(update={"work": work})))
        await eventually(lambda: len(engine.grammars) == 1)
        engine.grammars[0].set_exception(InvalidParameter("tools", "a pattern looks ahead"))
        await eventually(lambda: len(engine.grammars) == 2 or handing.done())
        if not handing.done():
            engine.grammars[1].set_result(None)
        ack = await handing
        if not strict:  # the acknowledgement may overtake the hand-over to the engine
            await eventually(lambda: len(engine.submitted) == 2)
    assert (ack.verdict, len(engine.grammars)) == (("refused", 1) if strict else ("held", 2))
    assert len(engine.submitted) == (1 if strict else 2), "the warm-up, and the request if it was taken"


async def test_a_slow_structure_is_waited_for_behind_the_ack_and_by_nobody_else() -> None:
    engine, grammar = FakeEngine(), object()
    engine.grammars_wait = True
    async with worker(engine) as bench:
        slow = bench.handoff(sampling=JSON)
        assert (await bench.hand(slow)).verdict == "held"
        await bench.hand(bench.handoff())
        assert slow.envelope.request_id not in {frame.request_id for frame in await bench.answer()}
        engine.grammars[0].set_result(grammar)
        frames = await bench.answer()
    assert engine.submitted[-1].grammar is grammar
    assert {frame.request_id for frame in frames} == {slow.envelope.request_id}
    assert isinstance(frames[0], Prologue)
    assert isinstance(frames[-1], End)


@pytest.mark.usefixtures("impatient")
async def test_a_slow_structure_that_is_wrong_is_an_error_before_anything_else() -> None:
    engine = FakeEngine()
    engine.grammars_wait = True
    async with worker(engine) as bench:
        assert (await bench.hand(bench.handoff(sampling=JSON))).verdict == "held"
        engine.grammars[0].set_exception(InvalidParameter("response_format", "it took over 5 s to compile"))
        (error,) = await bench.answer()
    assert isinstance(error, Error)
    assert (error.error.code, error.error.param) == ("invalid_value", "response_format")
    assert (error.error.status, error.final) == (400, False)


@pytest.mark.usefixtures("impatient")
async def test_who_leaves_while_the_structure_is_made_is_answered_at_once() -> None:
    engine = FakeEngine()
    engine.grammars_wait = True
    async with worker(engine) as bench:
        handoff = bench.handoff(sampling=JSON)
        await bench.hand(handoff)
        (ack,) = await bench.cancel(handoff.envelope.request_id)
        frames = await bench.answer()
        assert engine.grammars[0].cancelled()
        assert len(engine.submitted) == 1
    assert ack.blocks_freed == 0
    assert [type(frame) for frame in frames] == [Prologue, End]
    assert frames[-1].finish_reason == "cancelled"


PEERS = ("edge_api-1", "llm_gateway-1", "guard-1")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("peer", PEERS)
async def test_who_waits_is_watched_before_the_engine_has_the_request(peer: str) -> None:
    engine = FakeEngine()
    engine.grammars_wait = True
    async with worker(engine) as bench:
        await bench.hand(bench.handoff(sampling=JSON))
        await bench.lose(peer)
        frames = await bench.answer()
        assert engine.grammars[0].cancelled()
        assert len(engine.submitted) == 1  # the warm-up
    assert (frames[-1].error.code, frames[-1].final) == ("stop_lost", False)


@pytest.mark.parametrize("peer", PEERS)
async def test_a_lost_peer_ends_the_work_for_it(peer: str) -> None:
    engine = FakeEngine(autoplay=False)
    async with worker(engine) as bench:
        await bench.hand(bench.handoff())
        engine.step()
        await bench.lose(peer)
        end = (await bench.answer())[-1]
        (handle,) = [span for span in await bench.spans.get() if span.name == "handle"]
        assert (engine.waiting, engine.running) == ([], [])
    assert (end.error.code, end.final, end.usage.completion_tokens) == ("stop_lost", False, 1)
    assert handle.attributes["cancelled"] == f"lease_lost: {peer}"


async def test_a_bug_between_submit_and_ack_leaves_nothing_in_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = FakeEngine(autoplay=False)
    async with worker(engine) as bench:
        with monkeypatch.context() as patch:
            patch.setattr(EngineRun, "_accept", _break)
            ack = await bench.hand(bench.handoff())
        assert ack.error
        assert ack.error.code == "stop_failed"
        assert (engine.waiting, engine.running) == ([], [])
        await bench.lose("edge_api-1")  # nobody is told of it


async def test_the_deadline_ends_the_work_with_its_last_word() -> None:
    engine = FakeEngine(autoplay=False)
    async with worker(engine) as bench:
        handoff = bench.handoff()
        envelope = handoff.envelope.model_copy(update={"deadline": time.time() + 0.1})
        await bench.hand(handoff.model_copy(update={"envelope": envelope}))
        engine.step()
        last = (await bench.answer())[-1]

    assert isinstance(last, End)
    assert (last.finish_reason, last.usage.completion_tokens) == ("cancelled", 1)
    assert engine.running == []


async def test_a_deadline_that_passes_as_the_last_step_is_sent_takes_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bus stands still under the last step's first frame, until the deadline cuts that off."""
    engine = FakeEngine(Script(words=("Yes.",)), autoplay=False)
    stuck = asyncio.Event()
    async with worker(engine) as bench:
        publish = bench.bus.publish

        async def still_once(subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
            if "Yes." in payload.decode() and not stuck.is_set():
                stuck.set()
                await asyncio.Event().wait()
            await publish(subject, payload, reply=reply)

        monkeypatch.setattr(bench.bus, "publish", still_once)
        handoff = bench.handoff(sampling=Sampling(max_tokens=1))
        envelope = handoff.envelope.model_copy(update={"deadline": time.time() + 0.1})
        await bench.hand(handoff.model_copy(update={"envelope": envelope}))
        engine.step()
        await stuck.wait()
        prologue, last = await bench.answer()

    assert isinstance(last, End)
    assert (last.finish_reason, last.usage.completion_tokens) == ("stop", 1)
    assert (prologue.seq, last.seq) == (0, 2)  # what stood still has its number, and can be asked for


async def test_a_failed_engine_ends_every_request_and_then_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched: list[Any] = []

    async def keep(*what: Any) -> None:
        watched.extend(what)

    monkeypatch.setattr(worker_main, "leave_when_failed", keep)
    engine = FakeEngine(autoplay=False)
    async with worker(engine) as bench:
        for _ in range(2):
            await bench.hand(bench.handoff())
        engine.step()
        engine.crash("out of memory")
        codes: list[int] = []
        await leave_when_failed(*watched, codes.append)
        await asyncio.sleep(0)  # the in-memory bus delivers in the next turn of the loop
        errors = [frame for frame in _drain(bench.frames) if isinstance(frame, Error)]
        assert bench.node.num_held == 0

    assert codes == [EXIT_ENGINE_FAILED]
    assert [frame.final for frame in errors] == [False, False]
    assert all("out of memory" in frame.error.message for frame in errors)


async def test_a_stuck_engine_does_not_keep_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "LAST_FRAMES_SECONDS", 0.05)
    codes: asyncio.Queue[int] = asyncio.Queue()

    async def leave(watch: Any, actor: Any, node: Any) -> None:
        await leave_when_failed(watch, actor, node, codes.put_nowait)

    monkeypatch.setattr(worker_main, "leave_when_failed", leave)
    engine = FakeEngine(autoplay=False)
    async with worker(engine, engine_stuck_seconds=0.1) as bench:
        await bench.hand(bench.handoff())
        async with asyncio.timeout(20):
            assert await codes.get() == EXIT_ENGINE_FAILED


def _break(*_: object) -> None:
    raise RuntimeError("broken")


def _drain(queue: asyncio.Queue[Any]) -> list[Any]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


@pytest.mark.parametrize("never_heard", [False, True])
async def test_what_its_gateway_never_heard_of_is_booked_by_nobody(never_heard: bool) -> None:
    engine = FakeEngine(Script(), autoplay=False)
    async with worker(engine) as bench:
        first, second = bench.handoff(), bench.handoff()
        name = first.envelope.request_id
        await bench.hand(first)
        engine.step()
        cancel = Cancel(
            request_id=name, reason="superseded", attempt=1, run_id="00000000", never_heard=never_heard
        )
        await bench.bus.request_many(subjects.cancel(name), cancel.encode(), timeout=5, enough=1)
        await eventually(lambda: bench.node.num_held == 0)
        await bench.hand(second)
        await bench.lose("llm_gateway-1")
        await eventually(lambda: subjects.after("usage", second.envelope.request_id) in bench.bus.stored)
        assert (subjects.after("usage", name) in bench.bus.stored) is not never_heard


async def test_nor_where_its_client_left_as_well_before_the_worker_woke_up() -> None:
    async with worker(FakeEngine(Script(), autoplay=False)) as bench:
        first, second = bench.handoff(), bench.handoff()
        name = first.envelope.request_id
        given_up = Cancel(
            request_id=name, reason="superseded", attempt=1, run_id="00000000", never_heard=True
        )
        left = Cancel(request_id=name, reason="client_disconnected", run_id="00000000")
        for cancel in (given_up, left):
            await bench.bus.publish(subjects.cancel(name), cancel.encode())
        await bench.hand(first)
        await eventually(lambda: bench.node.num_held == 0)
        await bench.hand(second)
        await bench.lose("llm_gateway-1")
        await eventually(lambda: subjects.after("usage", second.envelope.request_id) in bench.bus.stored)
        assert subjects.after("usage", name) not in bench.bus.stored
