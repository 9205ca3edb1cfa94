"""What the edge counts, in the names that vLLM's dashboards know, and the gauges of each replica.

Owns one Prometheus registry. Times of tokens are observed after the last byte, never between two tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from baton_contracts.frames import Timings, Usage
from baton_contracts.heartbeats import ReplicaHeartbeat, StepProfile

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

# fmt: off
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
         160)
_TOKEN = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1,
          2.5, 5)
_E2E = (0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480)
_PHASE = (0.001, 0.003, 0.01, 0.03, *_E2E)
_COUNT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
# fmt: on


class ReplicaCollector(Collector):
    """The replicas' own figures, as of their last heartbeat."""

    def __init__(self, fresh: Callable[[], list[ReplicaHeartbeat]]) -> None:
        self._fresh = fresh

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        heartbeats = self._fresh()
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("model_name", "replica"))
            for heartbeat in heartbeats:
                gauge.add_metric((heartbeat.model, heartbeat.replica), value(heartbeat))
            yield gauge
        yield from _of_models(heartbeats)
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=("model_name", "replica"))
            for heartbeat in heartbeats:
                counter.add_metric((heartbeat.model, heartbeat.replica), value(heartbeat))
            yield counter
        seconds = CounterMetricFamily(
            "baton:step_seconds", "Time of the engine's steps.", labels=("model_name", "replica", "phase")
        )
        for heartbeat in heartbeats:
            for phase, value in _step_phases(heartbeat.step_profile).items():
                seconds.add_metric((heartbeat.model, heartbeat.replica, phase), value)
        yield seconds


def _step_phases(profile: StepProfile) -> dict[str, float]:
    return {
        "draft": profile.draft_seconds,
        "schedule": profile.schedule_seconds,
        "model": profile.model_seconds,
        "sample": profile.sample_seconds,
        "emit": profile.emit_seconds,
    }


_Read = Callable[[ReplicaHeartbeat], float]


def _of_models(heartbeats: list[ReplicaHeartbeat]) -> Iterator[Metric]:
    """What an autoscaler goes by: how much waits for a model, and who is there to do it."""
    labels = ("model_name",)
    ready = GaugeMetricFamily("baton:model_replicas_ready", "Replicas that take requests.", labels=labels)
    queue = GaugeMetricFamily("baton:model_queue_length", "Requests that wait.", labels=labels)
    tokens = GaugeMetricFamily("baton:model_queue_tokens", "Prompt tokens to compute.", labels=labels)
    for model in sorted({beat.model for beat in heartbeats}):
        own = [beat for beat in heartbeats if beat.model == model]
        ready.add_metric((model,), sum(beat.state == "ready" for beat in own))
        queue.add_metric((model,), sum(beat.num_waiting for beat in own))
        tokens.add_metric((model,), sum(beat.waiting_tokens + beat.prefill_tokens for beat in own))
    yield from (ready, queue, tokens)


_GAUGES: tuple[tuple[str, str, _Read], ...] = (
    ("vllm:num_requests_running", "Requests in the batch.", lambda beat: beat.num_running),
    ("vllm:num_requests_waiting", "Requests waiting for a seat.", lambda beat: beat.num_waiting),
    ("vllm:kv_cache_usage_perc", "KV blocks in use, 0 to 1.", lambda beat: beat.kv_usage),
    ("baton:kv_blocks", "KV blocks there are.", lambda beat: beat.kv_blocks_total),
    ("baton:kv_blocks_held", "KV blocks in use.", lambda beat: beat.kv_blocks_held),
    ("baton:waiting_tokens", "Prompt tokens that wait.", lambda beat: beat.waiting_tokens),
    ("baton:prefill_tokens", "Prompt tokens to compute of what runs.", lambda beat: beat.prefill_tokens),
    ("baton:prefill_tokens_per_second", "While at work.", lambda beat: beat.prefill_tokens_per_second),
    ("baton:replica_ready", "1 if it takes requests.", lambda beat: float(beat.state == "ready")),
)
_COUNTERS: tuple[tuple[str, str, _Read], ...] = (
    ("vllm:num_preemptions", "Requests set back to be computed again.", lambda beat: beat.preemptions_total),
    ("vllm:prefix_cache_queries", "Prompt tokens looked up.", lambda beat: beat.prompt_tokens_total),
    (
        "vllm:prefix_cache_hits",
        "Prompt tokens found in the cache.",
        lambda beat: beat.prefix_hit_tokens_total,
    ),
    (
        "vllm:spec_decode_num_drafts",
        "Requests and steps with guessed tokens.",
        lambda beat: beat.speculation.drafts_total,
    ),
    (
        "vllm:spec_decode_num_draft_tokens",
        "Tokens guessed.",
        lambda beat: beat.speculation.draft_tokens_total,
    ),
    (
        "vllm:spec_decode_num_accepted_tokens",
        "Tokens guessed rightly.",
        lambda beat: beat.speculation.accepted_tokens_total,
    ),
    ("baton:steps", "Steps that computed something.", lambda beat: beat.step_profile.steps_total),
    ("baton:step_tokens", "Tokens computed.", lambda beat: beat.step_profile.tokens_total),
    ("baton:replica_prompt_tokens", "Prompt tokens of requests.", lambda beat: beat.prompt_tokens_total),
    ("baton:replica_generation_tokens", "Tokens produced.", lambda beat: beat.generation_tokens_total),
    ("baton:replica_requests_finished", "Requests finished.", lambda beat: beat.finished_requests_total),
)


_PHASES = {
    "queue": "In the engine, until its first step.",
    "prefill": "From its first step to its first token.",
    "decode": "From its first token to its last.",
    "inference": "From its first step to its last token.",
}


class Metrics:
    def __init__(self, fresh: Callable[[], list[ReplicaHeartbeat]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(ReplicaCollector(fresh))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        model = ("model_name",)
        self._http = self._counter(
            "baton:http_requests", "Answers, by route and status.", ("route", "status")
        )
        self._errors = self._counter("baton:errors", "Errors told to clients.", ("code", "stop"))
        self._finished = self._counter(
            "vllm:request_success", "Answers that came to their end.", (*model, "finished_reason")
        )
        self._prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens of answers.", model)
        self._tokens = self._counter("vllm:generation_tokens", "Tokens of answers.", model)
        self._ttft = self._histogram(
            "vllm:time_to_first_token_seconds", "From first byte to first text.", _TTFT
        )
        self._gap = self._histogram("vllm:inter_token_latency_seconds", "Between two pieces of text.", _TOKEN)
        self._tpot = self._histogram(
            "vllm:time_per_output_token_seconds", "Mean of an answer, after its first token.", _TOKEN
        )
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", "From first to last byte.", _E2E)
        self._phases = {
            name: self._histogram(f"vllm:request_{name}_time_seconds", text, _PHASE)
            for name, text in _PHASES.items()
        }
        self._prompt_sizes = self._histogram("vllm:request_prompt_tokens", "Of an answer.", _COUNT)
        self._answer_sizes = self._histogram("vllm:request_generation_tokens", "Of an answer.", _COUNT)
        self._batch_lines = self._counter(
            "baton:batch_lines", "Lines of batches that have a result.", ("outcome",)
        )
        self.in_flight = Gauge("baton:requests_in_flight", "Requests under way.", registry=self.registry)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, ("model_name",), buckets=buckets, registry=self.registry)

    def answered(self, route: str, status: int) -> None:
        self._http.labels(route, str(status)).inc()

    def failed(self, code: str, stop: str | None) -> None:
        self._errors.labels(code, stop or "edge_api").inc()

    def batch_line(self, outcome: str) -> None:
        self._batch_lines.labels(outcome).inc()

    def embedded(self, model: str, num_tokens: int) -> None:
        self._prompt_tokens.labels(model).inc(num_tokens)

    def finished(
        self, model: str, reason: str, usage: Usage, times: list[float], *, began: float, ended: float
    ) -> None:
        """`times` are those at which pieces of text were sent; all are of one clock, in seconds."""
        self._finished.labels(model, reason).inc()
        self._prompt_tokens.labels(model).inc(usage.prompt_tokens)
        self._tokens.labels(model).inc(usage.completion_tokens)
        self._prompt_sizes.labels(model).observe(usage.prompt_tokens)
        self._answer_sizes.labels(model).observe(usage.completion_tokens)
        self._e2e.labels(model).observe(ended - began)
        if not times:
            return
        self._ttft.labels(model).observe(times[0] - began)
        if usage.completion_tokens > 1:
            self._tpot.labels(model).observe((times[-1] - times[0]) / (usage.completion_tokens - 1))
        observe = self._gap.labels(model).observe
        for before, after in itertools.pairwise(times):
            observe(after - before)

    def engine_took(self, model: str, seen: Timings) -> None:
        """The engine's own times of an answer; one from a cache has none."""
        scheduled, first, last = seen.scheduled_at, seen.first_token_at, seen.finished_at
        if scheduled is None or first is None:
            return
        took = {
            "queue": scheduled - seen.queued_at,
            "prefill": first - scheduled,
            "decode": last - first,
            "inference": last - scheduled,
        }
        for name, seconds in took.items():
            self._phases[name].labels(model).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
