"""The step loop: schedule → run → sample → emit. Owns each request from `add` to its last delta.

Single-threaded and synchronous: `LLM` drives it in the caller's thread, `AsyncEngine` in one of its own. It
checks nothing that admission has checked already.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from baton_engine.admission import WaitingRoom
from baton_engine.deltas import Preemption, PrefillChunk, RequestDelta, RequestFailure, one_for_each_answer
from baton_engine.engine_stats import CancelReport, EngineStats, Totals
from baton_engine.kv_cache import KVCache
from baton_engine.logprobs import score_prompts
from baton_engine.output import AnswerWriter, Ending
from baton_engine.request import Request, RequestState
from baton_engine.runner import Runner
from baton_engine.sampler import SampledToken, Sampler
from baton_engine.scheduler import Scheduler, StepPlan
from baton_engine.speculation.drafting import Speculation
from baton_engine.speculation.verification import rows_by_depth
from baton_engine.step_profile import StepProfiler
from baton_engine.structured.matcher import StructureBroken
from baton_engine.text.answer_reader import AnswerPart
from baton_engine.text_face import TextDecoderFactory

NOTHING = AnswerPart()


class EngineCore:
    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        sampler: Sampler,
        waiting_room: WaitingRoom,
        new_decoder: TextDecoderFactory,
        speculation: Speculation | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.sampler = sampler
        self.waiting_room = waiting_room
        self.speculation = speculation or Speculation()
        self.totals = Totals()
        self.profiler = StepProfiler()
        self._new_decoder = new_decoder
        self._writers: dict[str, dict[int, AnswerWriter]] = {}  # by request id, then by index of the answer
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
        except Exception as error:  # one request's fault is no other's
            self._ended_at_birth.append(self._fail(request, _code(error), error))
            return
        self._writers.setdefault(request.request_id, {})[request.index] = writer
        ending = writer.ending_of_resumed()
        if ending is None:
            return
        if request.forked_from is None:
            self._add_forks(request)  # before its end, which would be that of all
        ending = writer.concluded(ending)
        self._ended_at_birth.append(self._finish(request, ending, flush=False))

    def step(self) -> list[RequestDelta]:
        """One step over the whole batch; the deltas of all requests that it moved."""
        deltas = self._take_ended_at_birth()
        started_at = time.time()
        self.profiler.begin()
        self.speculation.propose(self.scheduler.running)
        self.profiler.ended("draft")
        plan = self.scheduler.schedule()
        self._note_admitted(plan, started_at)
        for request in plan.preempted:
            request.preemptions.append(Preemption(started_at))
        self.profiler.ended("schedule")
        if plan.chunks:
            self.profiler.count(plan.num_tokens)
            logits = self.runner.run(plan)
            self.profiler.ended("model")
            score_prompts(logits[plan.num_sampled_rows :], plan)
            self.profiler.ended("sample")
            self._note_prefills(plan, started_at)
            self.scheduler.complete(plan)
            self.profiler.ended("emit")
            deltas += self._answer(plan, logits)
        self.kv_cache.events.flush()
        self.profiler.ended("emit")
        if plan.chunks:
            seconds = self.profiler.seconds_since_begin
            self.scheduler.pace.learn(seconds, plan.num_decodes, plan.num_prompt_tokens)
        self.totals.steps += 1
        if not self.scheduler.has_work:
            self.check_idle()
        return deltas

    def _answer(self, plan: StepPlan, logits: Tensor) -> list[RequestDelta]:
        """Chooses and emits the plan's tokens: one for each request, one more for each guess that held."""
        deltas: list[RequestDelta] = []
        for rows, requests in rows_by_depth(logits, plan, self.scheduler.accept):
            sampled = self.sampler.sample(rows, requests)
            self.profiler.ended("sample")
            deltas += self._emit(requests, sampled)
            self.profiler.ended("emit")
        self.scheduler.drop_wrong_drafts(plan)
        self.speculation.learn(plan)
        return one_for_each_answer(deltas)

    def cancel(self, request_id: str) -> tuple[CancelReport, list[RequestDelta]]:
        """In any state. The deltas are the last ones of the request's answers; none if it is not held."""
        requests = self._answers_to(request_id)
        if not requests:
            return CancelReport(found=False), []
        deltas = [self._finish(request, Ending("cancelled")) for request in requests]
        blocks_freed = sum(delta.blocks_freed or 0 for delta in deltas)
        completion_tokens = sum(request.num_completion_tokens for request in requests)
        return CancelReport(True, blocks_freed, completion_tokens), deltas

    def fail_all(self, code: str, message: str) -> list[RequestDelta]:
        """Ends every held request with an error delta: for a fault that is not one request's own."""
        ending = Ending("error", failure=RequestFailure(code, message))
        deltas = self._take_ended_at_birth()
        for request_id in list(self._writers):
            deltas += [self._finish(request, ending, flush=False) for request in self._answers_to(request_id)]
        return deltas

    def stats(self) -> EngineStats:
        counts = self.kv_cache.pool.counts()
        # Those that wait for their first time are counted in the waiting room.
        again = [one for one in self.scheduler.waiting if one.num_preemptions or one.forked_from]
        return EngineStats(
            running=len(self.scheduler.running),
            waiting=self.waiting_room.num_requests + len(again),
            waiting_tokens=self.waiting_room.num_tokens + sum(one.num_tokens for one in again),
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
            speculation=self.speculation.stats(),
            prefill_tokens=sum(
                max(0, one.num_prompt_tokens - one.num_computed_tokens) for one in self.scheduler.running
            ),
        )

    def check_idle(self) -> None:
        """With nothing to do, no block is held and each is in one place. A leak is our bug: it raises."""
        self.kv_cache.pool.check()
        held = self.kv_cache.pool.counts().held
        assert held == 0, f"{held} KV blocks are held by nobody"
        self.speculation.check_idle()

    def _note_admitted(self, plan: StepPlan, now: float) -> None:
        for request in plan.admitted:
            if request.preemptions:
                request.preemptions[-1] = replace(request.preemptions[-1], resumed_at=now)
            if request.scheduled_at is not None:
                continue
            request.scheduled_at = now
            request.num_cached_tokens = min(request.num_computed_tokens, request.num_prompt_tokens)
            if request.forked_from is None:
                self.totals.prefix_hit_tokens += request.num_cached_tokens
            self.waiting_room.scheduled(request.request_id)

    def _note_prefills(self, plan: StepPlan, started_at: float) -> None:
        seconds = time.time() - started_at
        for chunk in plan.chunks:
            num_tokens = chunk.own_end - chunk.start
            if num_tokens > 1 or chunk.request.first_token_at is None:
                chunk.request.prefill_chunks.append(PrefillChunk(started_at, seconds, num_tokens))

    def _emit(self, requests: Sequence[Request], sampled: Sequence[SampledToken]) -> list[RequestDelta]:
        now = time.time()
        deltas: list[RequestDelta] = []
        for request, token in zip(requests, sampled, strict=True):
            delta = self._emit_one(request, token, now)
            deltas += self._take_ended_at_birth()  # forks that failed at once, before what counts those left
            deltas.append(delta)
        return deltas

    def _emit_one(self, request: Request, token: SampledToken, now: float) -> RequestDelta:
        first = request.first_token_at is None
        if first:
            request.first_token_at = now
        if token.token_id is None:
            return self._fail_without_token(request, token)
        if first and request.forked_from is None:
            self.totals.prompt_tokens += request.num_prompt_tokens
            self._add_forks(request)
        self.totals.generation_tokens += 1
        try:
            part, ending = self._writers[request.request_id][request.index].push(token.token_id)
        except Exception as error:  # one request's fault is no other's
            return self._fail(request, _code(error), error)
        logprobs = (token.logprobs,) if token.logprobs is not None else ()
        prompt = tuple(request.prompt_logprobs) if first and request.prompt_logprobs else None
        if ending is None:
            return RequestDelta(
                request.request_id,
                part.text,
                (token.token_id,),
                request.index,
                logprobs,
                prompt,
                reasoning=part.reasoning,
                tool_calls=part.tool_calls,
            )
        last = self._finish(request, ending, part)
        return replace(last, token_ids=(token.token_id,), logprobs=logprobs, prompt_logprobs=prompt)

    def _add_forks(self, request: Request) -> None:
        for index in range(1, request.sampling.n):
            self.add(request.fork(index))

    def _fail_without_token(self, request: Request, token: SampledToken) -> RequestDelta:
        matcher = request.matcher
        if not token.is_ruled_out:
            return self._fail(request, "invalid_logits", ValueError("the logits hold no number to choose by"))
        if matcher is None:
            return self._fail(request, "no_token_left", ValueError("the request's rules allow no token"))
        error = matcher.error or StructureBroken("no token is left that both it and the other rules allow")
        return self._fail(request, error.code, error)

    def _fail(self, request: Request, code: str, error: Exception) -> RequestDelta:
        return self._finish(request, Ending("error", failure=_failure(code, error)), flush=False)

    def _finish(
        self,
        request: Request,
        ending: Ending,
        part: AnswerPart = NOTHING,
        flush: bool = True,
    ) -> RequestDelta:
        """Takes the request out of everything, gives its blocks back and writes its last delta."""
        assert request.state is not RequestState.FINISHED, f"{request.request_id} finished twice"
        blocks_freed = self.scheduler.finish(request)
        self.speculation.forget(request)
        writers = self._writers.get(request.request_id, {})
        writer = writers.pop(request.index, None)
        if not writers:
            self._writers.pop(request.request_id, None)
            self.waiting_room.leave(request.request_id)
        if flush and writer is not None:
            try:
                part = part.then(writer.flush())
                ending = writer.concluded(ending)
            except Exception as error:  # one request's fault is no other's
                ending = Ending("error", ending.stop_reason, _failure("detokenizer_error", error))
        return RequestDelta(
            request_id=request.request_id,
            text=part.text,
            reasoning=part.reasoning,
            tool_calls=part.tool_calls,
            finish_reason=ending.reason,
            stop_reason=ending.stop_reason,
            error=ending.failure,
            usage=request.usage,
            blocks_freed=blocks_freed,
            timings=request.timings(time.time()),
            index=request.index,
            num_left=len(writers),
        )

    def _answers_to(self, request_id: str) -> list[Request]:
        return [writer.request for writer in self._writers.get(request_id, {}).values()]

    def _take_ended_at_birth(self) -> list[RequestDelta]:
        ended, self._ended_at_birth = self._ended_at_birth, []
        return ended


def _code(error: Exception) -> str:
    return error.code if isinstance(error, StructureBroken) else "detokenizer_error"


def _failure(code: str, error: Exception) -> RequestFailure:
    return RequestFailure(code, f"{type(error).__name__}: {error}")
