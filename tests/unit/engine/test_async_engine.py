"""The engine thread: submit and cancel from the event loop; what becomes of requests when it fails."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from baton_engine import (
    AsyncEngine,
    ConfigError,
    DuplicateRequest,
    EngineRequest,
    EngineUnavailable,
    KVEventBatch,
    QueueFull,
    RequestDelta,
    SamplingParams,
    async_engine,
)
from baton_engine.assembly import LoadedEngine
from baton_engine.scheduler import StepPlan
from tests.support.tiny_model import tiny_config, tiny_parts

LONG = SamplingParams(max_tokens=200, temperature=0, ignore_eos=True)
SHORT = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)


class Stream:
    """Collects one request's deltas; `finished` is set in the event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.deltas: list[RequestDelta] = []
        self.finished = asyncio.Event()
        self.begun = asyncio.Event()
        self.threads: set[str] = set()

    def __call__(self, delta: RequestDelta) -> None:
        self.deltas.append(delta)
        self.threads.add(threading.current_thread().name)
        self.loop.call_soon_threadsafe(self.begun.set)
        if delta.finish_reason is not None:
            self.loop.call_soon_threadsafe(self.finished.set)

    @property
    def last(self) -> RequestDelta:
        return self.deltas[-1]


def ask(
    request_id: str, sampling: SamplingParams = SHORT, prompt: tuple[int, ...] = (1, 2, 3)
) -> EngineRequest:
    return EngineRequest(request_id, prompt_token_ids=prompt, sampling=sampling)


async def started(**changes: Any) -> AsyncEngine:
    engine = AsyncEngine(tiny_config(**changes), tiny_parts())
    await engine.start()
    return engine


def step_gate(engine: AsyncEngine) -> threading.Event:
    """While the event is cleared, the engine stands still before its next step."""
    gate = threading.Event()
    gate.set()
    core = engine._engine.core  # type: ignore[union-attr]
    step = core.step

    def gated() -> list[RequestDelta]:
        assert gate.wait(60)
        return step()

    core.step = gated  # type: ignore[method-assign]
    return gate


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 20)


async def test_requests_run_together_in_the_engine_thread() -> None:
    stages: list[str] = []
    engine = AsyncEngine(tiny_config(), tiny_parts())
    await engine.start(on_progress=stages.append)
    assert stages == ["opening", "loading weights", "allocating KV", "warming up", "ready"]
    streams = [Stream() for _ in range(5)]
    for index, stream in enumerate(streams):
        admission = engine.submit(ask(f"r{index}"), stream)
        assert admission.prompt_tokens == 3
    for stream in streams:
        await soon(stream.finished)
        assert stream.last.finish_reason == "length"
        assert sum(len(delta.token_ids) for delta in stream.deltas) == 5
        assert stream.threads == {"baton-engine"}
    assert engine.stats().kv_blocks_held == 0
    assert engine.stats().generation_tokens_total == 25
    await engine.close()
    assert engine.state == "closed"


async def test_whoever_no_longer_waits_for_a_cancel_does_no_harm_to_others() -> None:
    engine = await started()
    gate = step_gate(engine)
    gate.clear()
    left, stays = Stream(), Stream()
    engine.submit(ask("left", LONG), left)
    engine.submit(ask("stays"), stays)
    report = engine.cancel("left")
    assert report.cancel()  # as a wait that has timed out does
    gate.set()
    await soon(stays.finished)
    assert stays.last.finish_reason == "length"
    assert left.last.finish_reason == "cancelled"
    assert engine.state == "ready"
    await engine.close()


async def test_cancel_reports_the_freed_blocks_and_is_over_when_its_future_is_done() -> None:
    engine = await started()
    gate = step_gate(engine)
    stream = Stream()

    def stop_after_the_first(delta: RequestDelta) -> None:
        if not stream.deltas:
            gate.clear()
        stream(delta)

    engine.submit(ask("a", LONG, tuple(range(40))), stop_after_the_first)
    await soon(stream.begun)
    cancelling = engine.cancel("a")
    gate.set()
    report = await asyncio.wrap_future(cancelling)
    assert report.found
    assert report.blocks_freed >= 3
    assert report.completion_tokens == sum(len(delta.token_ids) for delta in stream.deltas) <= 2
    assert stream.last.finish_reason == "cancelled"
    assert stream.last.blocks_freed == report.blocks_freed
    assert engine.stats().kv_blocks_held == 0
    again = await asyncio.wrap_future(engine.cancel("a"))
    assert (again.found, again.blocks_freed) == (False, 0)
    await engine.close()


async def test_what_waits_is_bounded_and_refused_at_once() -> None:
    engine = await started(max_num_seqs=1, max_waiting_requests=2)
    gate = step_gate(engine)
    first = Stream()

    def stop_after_the_first(delta: RequestDelta) -> None:
        if not first.deltas:
            gate.clear()
        first(delta)

    engine.submit(ask("running", LONG), stop_after_the_first)
    await soon(first.begun)
    assert engine.submit(ask("w1", LONG), Stream()).queue_position == 0
    second = engine.submit(ask("w2", LONG), Stream())
    assert (second.queue_position, second.waiting, second.running) == (1, 1, 1)
    with pytest.raises(QueueFull, match="2 requests"):
        engine.submit(ask("w3"), Stream())
    with pytest.raises(DuplicateRequest):
        engine.submit(ask("w1"), Stream())
    assert engine.stats().waiting == 2
    assert engine.stats().waiting_tokens == 6
    cancelling = engine.cancel("w2")
    gate.set()
    assert (await asyncio.wrap_future(cancelling)).found
    engine.submit(ask("w3"), Stream())
    await engine.close()


async def test_the_step_listener_comes_after_all_deltas_of_a_step() -> None:
    engine = await started()
    events: list[str] = []
    engine.set_step_listener(lambda: events.append("step"))
    streams = [Stream(), Stream()]
    both_in = threading.Event()
    original = engine._engine.core.step  # type: ignore[union-attr]

    def held_back() -> list[RequestDelta]:
        both_in.wait(20)
        return original()

    engine._engine.core.step = held_back  # type: ignore[union-attr, method-assign]
    for index, stream in enumerate(streams):

        def note(delta: RequestDelta, stream: Stream = stream) -> None:
            events.append(delta.request_id)
            stream(delta)

        engine.submit(ask(f"r{index}", SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)), note)
    both_in.set()
    for stream in streams:
        await soon(stream.finished)
    await engine.close()
    together = "".join("s" if event == "step" else event[-1] for event in events)
    assert together.replace("s", "") in ("0101", "0011", "0101")
    assert all(part in ("", "0", "1", "01") for part in together.split("s"))
    assert "01s" in together


async def test_a_listener_that_breaks_cancels_only_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    engine = await started()
    good = Stream()

    def broken(delta: RequestDelta) -> None:
        raise RuntimeError("the pipe is gone")

    engine.submit(ask("broken", LONG), broken)
    engine.submit(ask("good"), good)
    await soon(good.finished)
    assert good.last.finish_reason == "length"
    await asyncio.wrap_future(engine.cancel("broken"))
    assert engine.state == "ready"
    assert engine.stats().kv_blocks_held == 0
    assert "on_delta of request broken failed" in caplog.text
    await engine.close()


async def test_a_fault_of_the_step_loop_fails_every_held_request_and_is_reported() -> None:
    engine = await started(max_num_seqs=1)
    core = engine._engine.core  # type: ignore[union-attr]
    original = core.runner.run
    steps = 0

    def dying(plan: StepPlan) -> Any:
        nonlocal steps
        steps += 1
        if steps > 3:
            raise RuntimeError("device lost")
        return original(plan)

    core.runner.run = dying  # type: ignore[method-assign]
    gate = step_gate(engine)
    gate.clear()
    running, waiting = Stream(), Stream()
    engine.submit(ask("running", LONG), running)
    engine.submit(ask("waiting"), waiting)
    gate.set()
    for stream in (running, waiting):
        await soon(stream.finished)
        assert stream.last.finish_reason == "error"
        assert stream.last.error is not None
        assert stream.last.error.code == "engine_failed"
        assert "device lost" in stream.last.error.message
    await engine.close()
    assert engine.state == "failed"
    assert engine.failure == "RuntimeError: device lost"
    with pytest.raises(EngineUnavailable, match="failed: RuntimeError: device lost"):
        engine.submit(ask("late"), Stream())
    assert not (await asyncio.wrap_future(engine.cancel("running"))).found
    assert engine.stats().kv_blocks_held == 0


async def test_even_a_core_that_is_broken_through_and_through_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = await started()
    core = engine._engine.core  # type: ignore[union-attr]

    def broken(*args: object) -> Any:
        raise RuntimeError("broken")

    core.runner.run = broken  # type: ignore[method-assign]
    core.scheduler.finish = broken  # type: ignore[method-assign]
    stream = Stream()
    engine.submit(ask("a"), stream)
    await soon(stream.finished)
    assert stream.last.error is not None
    assert (stream.last.error.code, engine.state) == ("engine_failed", "failed")
    assert "could not end its requests in order" in caplog.text
    await engine.close()


async def test_closing_answers_what_is_held() -> None:
    engine = await started(max_num_seqs=1)
    gate = step_gate(engine)
    gate.clear()
    running, waiting = Stream(), Stream()
    engine.submit(ask("running", LONG), running)
    engine.submit(ask("waiting", LONG), waiting)
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    await engine.close()
    for stream in (running, waiting):
        assert stream.last.error is not None
        assert stream.last.error.code == "engine_closed"
    with pytest.raises(EngineUnavailable, match="The engine is closed"):
        engine.submit(ask("late"), Stream())


async def test_an_engine_that_can_not_load_says_why() -> None:
    engine = AsyncEngine(tiny_config(num_blocks=None, kv_memory_bytes=1), tiny_parts())
    with pytest.raises(EngineUnavailable, match="The engine is new"):
        engine.submit(ask("early"), Stream())
    with pytest.raises(ConfigError, match="No memory for one KV block"):
        await engine.start()
    assert engine.state == "failed"
    assert engine.failure is not None
    await engine.close()


async def test_who_gives_up_waiting_for_the_start_can_still_close_it(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    load = async_engine.load_engine

    def slow_load(*arguments: Any) -> LoadedEngine:
        assert go_on.wait(60)
        return load(*arguments)

    monkeypatch.setattr(async_engine, "load_engine", slow_load)
    engine = AsyncEngine(tiny_config(), tiny_parts())
    starting = asyncio.create_task(engine.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert engine.state == "starting"
    go_on.set()
    await engine.close()
    assert engine.state == "closed"


async def test_kv_events_come_in_the_engine_thread_before_the_deltas_of_their_step() -> None:
    engine = await started()
    seen: list[tuple[str, str, int]] = []

    def listen(batch: KVEventBatch) -> None:
        seen.append((threading.current_thread().name, "blocks", batch.number))

    engine.on_kv_event(listen)
    stream = Stream()

    def on_delta(delta: RequestDelta) -> None:
        seen.append((threading.current_thread().name, "delta", len(delta.token_ids)))
        stream(delta)

    engine.submit(ask("a", SHORT, tuple(range(20))), on_delta)
    await stream.finished.wait()
    await engine.close()
    events = [
        ("blocks", 0),
        ("blocks", 1),
        *[("delta", 1)] * 5,
    ]  # all there is (nothing), then one full block
    assert seen == [("baton-engine", *event) for event in events]
    with pytest.raises(EngineUnavailable):
        engine.on_kv_event(listen)


async def test_several_answers_reach_one_listener_until_the_last_has_ended() -> None:
    engine = await started()
    stream = Stream()
    ended = asyncio.Event()

    def on_delta(delta: RequestDelta) -> None:
        stream(delta)
        if delta.ends_request:
            stream.loop.call_soon_threadsafe(ended.set)

    sampling = SamplingParams(max_tokens=5, seed=1, ignore_eos=True, n=3)
    engine.submit(ask("a", sampling), on_delta)
    await ended.wait()
    assert [sum(delta.index == index for delta in stream.deltas) for index in range(4)] == [5, 5, 5, 0]
    assert [delta.num_left for delta in stream.deltas if delta.finish_reason] == [2, 1, 0]
    engine.submit(ask("a", sampling), on_delta)  # nothing of the first is left
    report = await asyncio.wrap_future(engine.cancel("a"))
    assert report.found
    await engine.close()
