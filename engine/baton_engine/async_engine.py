"""The engine for servers: its step loop runs in a thread of its own, and any thread may submit and cancel.

Owns the thread, the inbox in front of it and the engine's state:

    new → starting → ready → closed
              └────────┴──→ failed   (loading failed, or a fault of the step loop)

The event loop never waits for a step: `submit` checks and refuses in the caller's thread, `cancel` answers
through a future. The engine thread takes commands from the inbox between steps, so a cancel takes effect
within one step in whatever state its request is.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal

from baton_engine.admission import Admission, build_request
from baton_engine.assembly import LoadedEngine, ModelParts, load_engine
from baton_engine.config import EngineConfig
from baton_engine.deltas import RequestDelta, RequestFailure
from baton_engine.engine import EngineCore
from baton_engine.engine_stats import CancelReport, EngineStats
from baton_engine.errors import EngineUnavailable
from baton_engine.kv_events import KVListener
from baton_engine.request import EngineRequest, Request
from baton_engine.sampling_params import SamplingParams
from baton_engine.structured.matcher import Grammar

log = logging.getLogger(__name__)

EngineState = Literal["new", "starting", "ready", "failed", "closed"]
OnDelta = Callable[[RequestDelta], None]


@dataclass(frozen=True)
class Submit:
    request: Request
    on_delta: OnDelta


@dataclass(frozen=True)
class Cancel:
    request_id: str
    report: Future[CancelReport]


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class ListenToKV:
    listener: KVListener | None


Command = Submit | Cancel | ListenToKV | Close


class AsyncEngine:
    def __init__(self, config: EngineConfig, parts: ModelParts | None = None) -> None:
        self.config = config
        self._parts = parts
        self._state: EngineState = "new"
        self._failure: str | None = None
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._gate = threading.Lock()  # held while the state changes or a command is put behind a check of it
        self._listeners: dict[str, OnDelta] = {}
        self._on_step: Callable[[], None] | None = None
        self._engine: LoadedEngine | None = None
        self._stats: EngineStats | None = None
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def failure(self) -> str | None:
        """Why the state is `failed`, in a sentence."""
        return self._failure

    @property
    def tokenizer(self) -> Any:
        return self._loaded().tokenizer

    @property
    def max_model_len(self) -> int:
        return self._loaded().limits.max_model_len

    @property
    def vocab_size(self) -> int:
        return self._loaded().limits.vocab_size

    @property
    def generation_defaults(self) -> dict[str, Any]:
        """generation_config.json: what the model's makers advise for parameters a caller leaves out."""
        return self._loaded().generation_defaults

    async def start(self, on_progress: Callable[[str], None] | None = None) -> None:
        """Loads, warms up. Raises ModelLoadError or ConfigError. on_progress is called in the event loop.

        Whoever gives up waiting for it has an engine that goes on loading, until `close`.
        """
        assert self._state == "new", f"an engine starts once; its state is {self._state}"
        self._state = "starting"
        loop = asyncio.get_running_loop()
        started: Future[None] = Future()
        started.set_running_or_notify_cancel()  # the wait for it may be cancelled, not the start itself

        def report(stage: str) -> None:
            if on_progress is not None:
                loop.call_soon_threadsafe(on_progress, stage)

        self._thread = threading.Thread(
            target=self._main, args=(report, started), name="baton-engine", daemon=True
        )
        self._thread.start()
        await asyncio.wrap_future(started)

    async def close(self) -> None:
        """Ends the thread; requests still held get an error delta (engine_closed). Safe to call twice."""
        with self._gate:
            self._inbox.put(Close())
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def prepare(self, sampling: SamplingParams) -> Future[Grammar | None]:
        """To be awaited before `submit` where sampling.structured is set: its grammar is compiled meanwhile,
        in another thread. The future's exception is InvalidParameter. Raises QueueFull or EngineUnavailable.

        The grammar goes with the request (EngineRequest.grammar). Without it, `submit` waits for the
        compilation itself, in the caller's thread.
        """
        return self._loaded().grammars.prepare(sampling.structured)

    def submit(self, asked: EngineRequest, on_delta: OnDelta) -> Admission:
        """Checks the request and queues it. Raises RequestRejected or EngineUnavailable.

        on_delta is called in the engine thread, once for each step that moves the request, and must be quick.
        """
        engine = self._loaded()
        request = build_request(asked, engine.limits, engine.tokenizer, engine.grammars)
        with self._gate:
            self._require_ready()
            admission = engine.core.waiting_room.enter(request)
            self._inbox.put(Submit(request, on_delta))
        return admission

    def cancel(self, request_id: str) -> Future[CancelReport]:
        """Takes effect within one step; the last delta (cancelled) is delivered before the future is done."""
        report: Future[CancelReport] = Future()
        with self._gate:
            if self._state == "ready":
                self._inbox.put(Cancel(request_id, report))
            else:
                report.set_result(CancelReport(found=False))
        return report

    def stats(self) -> EngineStats:
        """Blocks and counters as of the last step, the waiting ones as of now."""
        room = self._loaded().core.waiting_room
        assert self._stats is not None
        waiting = max(room.num_requests, self._stats.waiting)
        waiting_tokens = max(room.num_tokens, self._stats.waiting_tokens)
        return replace(self._stats, waiting=waiting, waiting_tokens=waiting_tokens)

    def set_step_listener(self, on_step: Callable[[], None] | None) -> None:
        """Called in the engine thread after the deltas of each step, to flush them together."""
        self._on_step = on_step

    def on_kv_event(self, listener: KVListener | None) -> None:
        """See KVCache.on_kv_event: the listener is called in the engine thread, before the step's deltas.

        Calling it again gives the whole state again, for a receiver that has lost a batch.
        """
        with self._gate:
            self._require_ready()
            self._inbox.put(ListenToKV(listener))

    def _loaded(self) -> LoadedEngine:
        if self._engine is None:
            raise EngineUnavailable(self._state, f"The engine is {self._state}; its model is not loaded.")
        return self._engine

    def _require_ready(self) -> None:
        if self._state != "ready":
            why = f": {self._failure}" if self._failure else ""
            raise EngineUnavailable(self._state, f"The engine is {self._state}{why}.")

    # All below runs in the engine thread.

    def _main(self, report: Callable[[str], None], started: Future[None]) -> None:
        try:
            engine = load_engine(self.config, self._parts, report)
            self._stats = engine.core.stats()  # before the engine: who sees that may ask for these
            self._engine = engine
        except BaseException as error:
            self._state, self._failure = "failed", f"{type(error).__name__}: {error}"
            started.set_exception(error)
            return
        self._state = "ready"
        started.set_result(None)
        try:
            self._loop(engine)
        except Exception as error:  # the boundary of the engine's thread: told to all who wait
            log.exception("the step loop failed; every held request gets an error")
            self._failure = f"{type(error).__name__}: {error}"
            self._end("failed", "engine_failed", f"The engine's step loop failed: {self._failure}")
        else:
            self._end("closed", "engine_closed", "The engine was closed while it held this request.")

    def _loop(self, engine: LoadedEngine) -> None:
        """Commands, then one step, until somebody closes; sleeps on the inbox when there is no work."""
        while True:
            if not self._take_commands(engine):
                return
            if engine.core.has_work:
                deltas = engine.core.step()
                self._stats = engine.core.stats()  # before the deltas: who sees an end sees its blocks free
                self._deliver(deltas)
                if self._on_step is not None:
                    self._on_step()

    def _take_commands(self, engine: LoadedEngine) -> bool:
        while True:
            try:
                command = self._inbox.get(block=not engine.core.has_work)
            except queue.Empty:
                return True
            match command:
                case Submit(request, on_delta):
                    self._listeners[request.request_id] = on_delta
                    engine.core.add(request)
                case Cancel(request_id, report):
                    self._cancel(engine, request_id, report)
                case ListenToKV(listener):
                    engine.core.kv_cache.on_kv_event(listener)
                case Close():
                    return False

    def _cancel(self, engine: LoadedEngine, request_id: str, report: Future[CancelReport]) -> None:
        outcome, deltas = engine.core.cancel(request_id)
        self._stats = engine.core.stats()
        if deltas:
            self._deliver(deltas)
            if self._on_step is not None:
                self._on_step()
        _tell(report, outcome)

    def _deliver(self, deltas: list[RequestDelta]) -> None:
        for delta in deltas:
            finished = delta.ends_request
            listener = self._listeners.get(delta.request_id)
            if finished:
                self._listeners.pop(delta.request_id, None)
            if listener is None:
                continue  # its listener broke before; the request is being cancelled
            try:
                listener(delta)
            except Exception:  # a listener's fault is not the engine's
                log.exception("on_delta of request %s failed; the request is cancelled", delta.request_id)
                if not finished:
                    self._listeners.pop(delta.request_id)
                    self._inbox.put(Cancel(delta.request_id, Future()))

    def _end(self, state: EngineState, code: str, message: str) -> None:
        """The last act: nobody who was let in is left without an answer."""
        assert self._engine is not None
        core = self._engine.core
        with self._gate:
            self._state = state
        while not self._inbox.empty():
            match self._inbox.get():
                case Submit(request, on_delta):
                    self._listeners[request.request_id] = on_delta
                    core.add(request)
                case Cancel(_, report):
                    _tell(report, CancelReport(found=False))
                case ListenToKV() | Close():
                    pass
        deltas = self._last_deltas(core, code, message)
        self._stats = core.stats()
        self._deliver(deltas)
        if self._on_step is not None:
            self._on_step()

    def _last_deltas(self, core: EngineCore, code: str, message: str) -> list[RequestDelta]:
        """After a fault the core may be broken too: its requests still get an answer, without figures."""
        try:
            return core.fail_all(code, message)
        except Exception:  # the core may be in any state
            log.exception("the core could not end its requests in order")
            failure = RequestFailure(code, message)
            return [
                RequestDelta(name, finish_reason="error", error=failure) for name in list(self._listeners)
            ]


def _tell(report: Future[CancelReport], outcome: CancelReport) -> None:
    """Whoever asked may have waited long enough, and cancelled the wait."""
    if report.set_running_or_notify_cancel():
        report.set_result(outcome)
