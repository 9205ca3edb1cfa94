"""A scripted engine with the face of `baton_engine.AsyncEngine`: who waits, who runs, what is refused.

It steps in the event loop: by itself while it has work (`autoplay`), or when the test calls `step`. Every
block is counted, so a test can see that nothing leaks. What it says is scripted_answer's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from baton_engine import (
    Admission,
    CancelReport,
    ContextLengthExceeded,
    EngineRequest,
    EngineStats,
    EngineUnavailable,
    KVCapacityExceeded,
    KVEventBatch,
    QueueFull,
    RequestDelta,
    RequestFailure,
    SamplingParams,
)
from baton_engine.deltas import FinishReason
from baton_engine.kv_events import KVEventLog
from tests.support.scripted_answer import Script, ScriptedAnswer


class FakeTokenizer:
    """One token a word."""

    chat_template_source = "{{ messages }}"
    fingerprint = "words"
    eos_token_ids = frozenset({0})

    def token_bytes(self, token_id: int) -> bytes:
        return f"<{token_id}>".encode()

    def encode(self, text: str) -> list[int]:
        return [1 for _ in text.split()]

    def encode_raw(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [2] * add_special_tokens + self.encode(text)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        del skip_special_tokens
        return "".join(map("<{}>".format, ids))

    def apply_chat_template(
        self, messages: list[dict[str, Any]], tools: Any = None, **variables: Any
    ) -> list[int]:
        if messages[0]["role"] == "assistant":
            raise ValueError("a conversation can't begin with the assistant")
        return [1 for message in messages for _ in f"{message['role']} {message['content']}".split()]


class FakeEngine:
    def __init__(self, script: Script | None = None, *, autoplay: bool = True) -> None:
        self.script = script or Script()
        self.state = "new"
        self.failure: str | None = None
        self.tokenizer = FakeTokenizer()
        self.generation_defaults: dict[str, Any] = {}
        self.waiting: list[ScriptedAnswer] = []
        self.running: list[ScriptedAnswer] = []
        self.submitted: list[EngineRequest] = []
        self.grammars: list[Future[Any]] = []
        self.grammars_wait = False
        self.num_steps = 0
        self.kv_log = KVEventLog(block_size=16)
        self.findable: dict[bytes, bytes] = {}
        """What its prefix cache holds, hash to parent's hash; `store` and `evict` change it."""
        self._generated = 0
        self._autoplay = autoplay
        self._on_step: Callable[[], None] | None = None
        self._work = asyncio.Event()
        self._player: asyncio.Task[None] | None = None

    @property
    def max_model_len(self) -> int:
        return self.script.context

    async def start(self, on_progress: Callable[[str], None] | None = None) -> None:
        if on_progress:
            on_progress("loading weights")
        self.state = "ready"
        self._player = asyncio.create_task(self._play())

    async def close(self) -> None:
        self.state = "closed"
        if self._player:
            self._player.cancel()

    def set_step_listener(self, on_step: Callable[[], None] | None) -> None:
        self._on_step = on_step

    def on_kv_event(self, listener: Callable[[KVEventBatch], None] | None) -> None:
        if self.state != "ready":
            raise EngineUnavailable(self.state, f"The engine is {self.state}.")
        self.kv_log.listen(listener, self.findable.items())

    def store(self, *chain: bytes, parent: bytes = b"root") -> None:
        """One step that fills blocks of one prefix."""
        for digest in chain:
            self.findable[digest] = parent
            self.kv_log.stored(digest, parent)
            parent = digest
        self.kv_log.flush()

    def evict(self, *digests: bytes) -> None:
        for digest in digests:
            del self.findable[digest]
            self.kv_log.removed(digest)
        self.kv_log.flush()

    def prepare(self, sampling: SamplingParams) -> Future[Any]:
        """A test may keep it waiting, or let it fail."""
        del sampling
        self.grammars.append(Future())
        if not self.grammars_wait:
            self.grammars[-1].set_result(None)
        return self.grammars[-1]

    def submit(self, asked: EngineRequest, on_delta: Callable[[RequestDelta], None]) -> Admission:
        script, held = self.script, ScriptedAnswer(asked, on_delta)
        if self.state != "ready":
            raise EngineUnavailable(self.state, f"The engine is {self.state}.")
        wanted = asked.sampling.max_tokens or 1
        if held.num_prompt_tokens + wanted > script.context:
            raise ContextLengthExceeded(held.num_prompt_tokens, wanted, script.context)
        needed = -(-(held.num_prompt_tokens + wanted) // 16)
        if needed > script.kv_blocks:
            raise KVCapacityExceeded(needed, script.kv_blocks)
        if len(self.waiting) >= script.max_waiting:
            raise QueueFull(len(self.waiting), script.max_waiting, "requests")
        admission = Admission(len(self.waiting), len(self.waiting), len(self.running), held.num_prompt_tokens)
        self.submitted.append(asked)
        held.resume(script.words)
        self.waiting.append(held)
        self._work.set()
        return admission

    def cancel(self, request_id: str) -> Future[CancelReport]:
        report: Future[CancelReport] = Future()
        found = next((h for h in (*self.waiting, *self.running) if h.asked.request_id == request_id), None)
        if found is None:
            report.set_result(CancelReport(found=False))
            return report
        blocks, emitted = found.num_blocks, found.emitted
        self._end(found, "cancelled")
        self._step_done()
        report.set_result(CancelReport(found=True, blocks_freed=blocks, completion_tokens=emitted))
        return report

    def stats(self) -> EngineStats:
        held = sum(each.num_blocks for each in self.running)
        return EngineStats(
            running=len(self.running),
            waiting=len(self.waiting),
            waiting_tokens=sum(each.num_prompt_tokens for each in self.waiting),
            kv_blocks_total=self.script.kv_blocks,
            kv_blocks_free=self.script.kv_blocks - held,
            kv_blocks_cached=0,
            kv_blocks_held=held,
            kv_usage=held / self.script.kv_blocks,
            prompt_tokens_total=0,
            generation_tokens_total=self._generated,
            preemptions_total=0,
            prefix_hit_tokens_total=0,
            steps_total=self.num_steps,
        )

    def step(self) -> None:
        """One token for each that runs, after those that wait have taken the free places."""
        self.num_steps += 1
        while self.waiting and len(self.running) < self.script.max_running:
            held = self.waiting.pop(0)
            held.scheduled_at = time.time()
            self.running.append(held)
        for held in list(self.running):
            self._advance(held)
        self._step_done()

    def crash(self, reason: str = "the step loop broke") -> None:
        self.state, self.failure = "failed", reason
        for held in [*self.waiting, *self.running]:
            self._end(held, "error", RequestFailure("engine_failed", reason))
        self._step_done()

    def _advance(self, answer: ScriptedAnswer) -> None:
        script = Script() if answer.asked.request_id == "warm-up" else self.script
        num_before = answer.emitted
        if answer.step(script):
            self.running.remove(answer)
        self._generated += answer.emitted - num_before

    def _end(
        self, answer: ScriptedAnswer, reason: FinishReason, failure: RequestFailure | None = None
    ) -> None:
        answer.end(reason, failure)
        (self.running if answer in self.running else self.waiting).remove(answer)

    def _step_done(self) -> None:
        if self._on_step:
            self._on_step()

    async def _play(self) -> None:
        while True:
            await self._work.wait()
            if (self._autoplay or self._warming_up) and (self.waiting or self.running):
                self.step()
            else:
                self._work.clear()
            await asyncio.sleep(self.script.step_seconds)

    @property
    def _warming_up(self) -> bool:
        return any(held.asked.request_id == "warm-up" for held in (*self.waiting, *self.running))
