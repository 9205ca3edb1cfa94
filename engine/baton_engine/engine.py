"""The step loop: schedule → run → sample → emit. Owns each request from `add` to its last delta.

Single-threaded and synchronous: `LLM` drives it in the caller's thread, `AsyncEngine` in one of its own. It
checks nothing that admission has checked already.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from baton_engine.admission import WaitingRoom
from baton_engine.kv_cache import KVCache
from baton_engine.logprobs import score_prompts
from baton_engine.output import AnswerWriter, Ending
from baton_engine.request import (
    FinishReason,
    PrefillChunk,
    Request,
    RequestDelta,
    RequestFailure,
    RequestState,
)
from baton_engine.runner import Runner
from baton_engine.sampler import SampledToken, Sampler
from baton_engine.scheduler import Scheduler, StepPlan
from baton_engine.step_profile import StepProfile, StepProfiler
from baton_engine.text_face import TextDecoderFactory


@dataclass(frozen=True)
class CancelReport:
    """found is False for an id that is not held (never was, or is finished already)."""

    found: bool
    blocks_freed: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class EngineStats:
    running: int
    waiting: int
    waiting_tokens: int
    kv_blocks_total: int
    kv_blocks_free: int
    kv_blocks_cached: int
    kv_blocks_held: int
    kv_usage: float
    prompt_tokens_total: int
    generation_tokens_total: int
    preemptions_total: int
    prefix_hit_tokens_total: int
    steps_total: int
    step_profile: StepProfile = field(default_factory=StepProfile)


@dataclass
class Totals:
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_hit_tokens: int = 0
    steps: int = 0


class EngineCore:
    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        sampler: Sampler,
        waiting_room: WaitingRoom,
        new_decoder: TextDecoderFactory,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.sampler = sampler
        self.waiting_room = waiting_room
        self.totals = Totals()
        self.profiler = StepProfiler()
        self._new_decoder = new_decoder
        self._writers: dict[str, AnswerWriter] = {}
        self._ended_at_birth: list[RequestDelta] = []

    @property
    def kv_cache(self) -> KVCache:
        return self.scheduler.kv_cache

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or bool(self._ended_at_birth)

    def add(self, request: Request) -> None:
        """The request is held from here on; what goes wrong with it alone becomes its error delta."""
        self.scheduler.add(request)
        try:
            writer = AnswerWriter(request, self._new_decoder)
        except Exception as error:
            self._ended_at_birth.append(self._fail(request, "detokenizer_error", error))
            return
        self._writers[request.request_id] = writer
        ending = writer.ending_of_resumed()
        if ending is not None:
            self._ended_at_birth.append(self._finish(request, ending))

    def step(self) -> list[RequestDelta]:
        """One step over the whole batch; the deltas of all requests that it moved."""
        deltas, self._ended_at_birth = self._ended_at_birth, []
        started_at = time.time()
        self.profiler.begin()
        plan = self.scheduler.schedule()
        self._note_admitted(plan, started_at)
        self.profiler.ended("schedule")
        if plan.chunks:
            self.profiler.count(plan.num_tokens)
            logits = self.runner.run(plan)
            self.profiler.ended("model")
            requests = [chunk.request for chunk in plan.chunks if chunk.samples]
            score_prompts(logits[len(requests) :], plan)
            sampled = self.sampler.sample(logits[: len(requests)], requests)
            self.profiler.ended("sample")
            self._note_prefills(plan, started_at)
            self.scheduler.complete(plan)
            deltas += self._emit(requests, sampled)
        self.kv_cache.events.flush()
        self.profiler.ended("emit")
        self.totals.steps += 1
        if not self.scheduler.has_work:
            self.check_idle()
        return deltas

    def cancel(self, request_id: str) -> tuple[CancelReport, RequestDelta | None]:
        """In any state. The delta is the request's last one; None if it is not held."""
        writer = self._writers.get(request_id)
        if writer is None:
            return CancelReport(found=False), None
        request = writer.request
        delta = self._finish(request, Ending("cancelled"))
        return CancelReport(True, delta.blocks_freed or 0, request.num_completion_tokens), delta

    def fail_all(self, code: str, message: str) -> list[RequestDelta]:
        """Ends every held request with an error delta: for a fault that is not one request's own."""
        failure = RequestFailure(code, message)
        deltas, self._ended_at_birth = self._ended_at_birth, []
        for writer in list(self._writers.values()):
            deltas.append(self._finish(writer.request, Ending("error", failure=failure), flush=False))
        return deltas

    def stats(self) -> EngineStats:
        counts = self.kv_cache.pool.counts()
        preempted = [request for request in self.scheduler.waiting if request.num_preemptions]
        return EngineStats(
            running=len(self.scheduler.running),
            waiting=self.waiting_room.num_requests + len(preempted),
            waiting_tokens=self.waiting_room.num_tokens + sum(request.num_tokens for request in preempted),
            kv_blocks_total=counts.total,
            kv_blocks_free=counts.free,
            kv_blocks_cached=counts.cached,
            kv_blocks_held=counts.held,
            kv_usage=counts.held / counts.total,
            prompt_tokens_total=self.totals.prompt_tokens,
            generation_tokens_total=self.totals.generation_tokens,
            preemptions_total=self.scheduler.num_preemptions,
            prefix_hit_tokens_total=self.totals.prefix_hit_tokens,
            steps_total=self.totals.steps,
            step_profile=self.profiler.profile(),
        )

    def check_idle(self) -> None:
        """With nothing to do, no block is held and each is in one place. A leak is our bug: it raises."""
        self.kv_cache.pool.check()
        held = self.kv_cache.pool.counts().held
        assert held == 0, f"{held} KV blocks are held by nobody"

    def _note_admitted(self, plan: StepPlan, now: float) -> None:
        for request in plan.admitted:
            if request.scheduled_at is not None:
                continue  # back after a preemption
            request.scheduled_at = now
            request.num_cached_tokens = min(request.num_computed_tokens, request.num_prompt_tokens)
            self.totals.prefix_hit_tokens += request.num_cached_tokens
            self.waiting_room.scheduled(request.request_id)

    def _note_prefills(self, plan: StepPlan, started_at: float) -> None:
        seconds = time.time() - started_at
        for chunk in plan.chunks:
            if chunk.num_tokens > 1 or chunk.request.first_token_at is None:
                chunk.request.prefill_chunks.append(PrefillChunk(started_at, seconds, chunk.num_tokens))

    def _emit(self, requests: Sequence[Request], sampled: Sequence[SampledToken]) -> list[RequestDelta]:
        now = time.time()
        return [self._emit_one(request, token, now) for request, token in zip(requests, sampled, strict=True)]

    def _emit_one(self, request: Request, token: SampledToken, now: float) -> RequestDelta:
        first = request.first_token_at is None
        if first:
            request.first_token_at = now
            self.totals.prompt_tokens += request.num_prompt_tokens
        if token.token_id is None:
            return self._fail(request, "invalid_logits", ValueError("the logits hold no number to choose by"))
        self.totals.generation_tokens += 1
        try:
            text, ending = self._writers[request.request_id].push(token.token_id)
        except Exception as error:
            return self._fail(request, "detokenizer_error", error)
        logprobs = (token.logprobs,) if token.logprobs is not None else ()
        prompt = tuple(request.prompt_logprobs) if first and request.prompt_logprobs else None
        if ending is None:
            return RequestDelta(request.request_id, text, (token.token_id,), logprobs, prompt)
        last = self._finish(request, ending, text)
        return replace(last, token_ids=(token.token_id,), logprobs=logprobs, prompt_logprobs=prompt)

    def _fail(self, request: Request, code: str, error: Exception) -> RequestDelta:
        return self._finish(request, Ending("error", failure=_failure(code, error)), flush=False)

    def _finish(
        self,
        request: Request,
        ending: Ending,
        text: str = "",
        flush: bool = True,
    ) -> RequestDelta:
        """Takes the request out of everything, gives its blocks back and writes its last delta."""
        assert request.state is not RequestState.FINISHED, f"{request.request_id} finished twice"
        blocks_freed = self.scheduler.finish(request)
        writer = self._writers.pop(request.request_id, None)
        self.waiting_room.leave(request.request_id)
        reason: FinishReason = ending.reason
        failure = ending.failure
        if flush and writer is not None:
            try:
                text += writer.flush()
            except Exception as error:
                reason, failure = "error", _failure("detokenizer_error", error)
        return RequestDelta(
            request_id=request.request_id,
            text=text,
            finish_reason=reason,
            stop_reason=ending.stop_reason,
            error=failure,
            usage=request.usage,
            blocks_freed=blocks_freed,
            timings=request.timings(time.time()),
        )


def _failure(code: str, error: Exception) -> RequestFailure:
    return RequestFailure(code, f"{type(error).__name__}: {error}")
