"""The engine for Python programs: prompts in, answers out. Owns a core, stepped in the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from baton_engine.admission import build_request
from baton_engine.assembly import ModelParts, load_engine
from baton_engine.config import EngineConfig
from baton_engine.deltas import FinishReason, RequestDelta, RequestFailure, Timings, TokenLogprobs, Usage
from baton_engine.engine_stats import EngineStats
from baton_engine.output_format import PLAIN, OutputFormat, ToolCallDelta
from baton_engine.request import EngineRequest
from baton_engine.sampling_params import SamplingParams

Prompt = str | Sequence[int]


@dataclass(frozen=True)
class RequestOutput:
    """One finished answer; index tells apart those of a request with n over 1.

    error is set if and only if finish_reason is "error". text, reasoning and tool_calls are what
    output_format told apart; each call is whole.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: int | str | None
    usage: Usage
    timings: Timings
    error: RequestFailure | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    index: int = 0
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()


class LLM:
    """LLM("path/to/model").generate("Once upon a time") → one RequestOutput for each prompt.

    Further keyword arguments are those of EngineConfig. Not for use from several threads: see AsyncEngine.
    """

    def __init__(self, model: str | Path, *, parts: ModelParts | None = None, **config: Any) -> None:
        self._engine = load_engine(EngineConfig(model=Path(model), **config), parts)
        self._ids = count()
        self._come: dict[str, list[RequestDelta]] = {}  # by request, what nobody has taken yet

    @property
    def tokenizer(self) -> Any:
        return self._engine.tokenizer

    @property
    def max_model_len(self) -> int:
        return self._engine.limits.max_model_len

    def stats(self) -> EngineStats:
        return self._engine.core.stats()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Strings are plain text (no template). All prompts run in one batch. Raises RequestRejected."""
        asked = [
            EngineRequest(request_id="", prompt_token_ids=self._ids_of(prompt))
            for prompt in _as_list(prompts)
        ]
        return self.run(self._with_sampling(asked, sampling))

    def chat(
        self,
        messages: list[dict[str, Any]],
        sampling: SamplingParams | None = None,
        tools: list[dict[str, Any]] | None = None,
        output_format: OutputFormat = PLAIN,
    ) -> RequestOutput:
        """One conversation through the model's chat template. Raises RequestRejected."""
        asked = EngineRequest(
            request_id="",
            messages=messages,
            tools=tools,
            sampling=sampling or SamplingParams(),
            output_format=output_format,
        )
        return self.run([asked])[0]

    def stream(self, asked: EngineRequest) -> Iterator[RequestDelta]:
        """The deltas of one request as they come. Leaving the iterator early cancels the request."""
        asked = self._with_id(asked)
        self._add(asked)
        finished = False
        try:
            while not finished:
                for delta in self._take(asked.request_id):
                    finished = finished or delta.ends_request
                    yield delta
                if not finished:
                    self._step()
        finally:
            self._drop(asked.request_id)

    def run(self, asked: Sequence[EngineRequest]) -> list[RequestOutput]:
        """Runs all requests to their ends, batched, and those of open streams beside them. If one is refused,
        none is run.

        One output for each request in order; n of them, by index, where sampling.n is over 1.
        """
        named = [self._with_id(one) for one in asked]
        added: list[str] = []
        try:
            for one in named:
                self._add(one)
                added.append(one.request_id)
            while not all(self._has_ended(request_id) for request_id in added):
                self._step()
            return [output for request_id in added for output in _outputs(self._take(request_id))]
        finally:
            for request_id in added:
                self._drop(request_id)

    def _add(self, asked: EngineRequest) -> None:
        core = self._engine.core
        request = build_request(asked, self._engine.limits, self._engine.tokenizer, self._engine.grammars)
        core.waiting_room.enter(request)
        core.add(request)
        self._come[request.request_id] = []

    def _step(self) -> None:
        for delta in self._engine.core.step():
            self._come[delta.request_id].append(delta)

    def _take(self, request_id: str) -> list[RequestDelta]:
        come, self._come[request_id] = self._come[request_id], []
        return come

    def _has_ended(self, request_id: str) -> bool:
        come = self._come[request_id]
        return bool(come) and come[-1].ends_request

    def _drop(self, request_id: str) -> None:
        self._engine.core.cancel(request_id)
        del self._come[request_id]

    def _with_id(self, asked: EngineRequest) -> EngineRequest:
        return asked if asked.request_id else replace(asked, request_id=f"request-{next(self._ids)}")

    def _with_sampling(
        self, asked: Sequence[EngineRequest], sampling: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[EngineRequest]:
        if sampling is None or isinstance(sampling, SamplingParams):
            sampling = [sampling or SamplingParams()] * len(asked)
        return [replace(one, sampling=params) for one, params in zip(asked, sampling, strict=True)]

    def _ids_of(self, prompt: Prompt) -> Sequence[int]:
        return self._engine.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _outputs(deltas: Sequence[RequestDelta]) -> list[RequestOutput]:
    answers: dict[int, list[RequestDelta]] = {}
    for delta in deltas:
        answers.setdefault(delta.index, []).append(delta)
    return [_join(answers[index]) for index in sorted(answers)]


def _join(deltas: Sequence[RequestDelta]) -> RequestOutput:
    last = deltas[-1]
    assert last.finish_reason is not None
    assert last.usage is not None
    assert last.timings is not None
    return RequestOutput(
        request_id=last.request_id,
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        usage=last.usage,
        timings=last.timings,
        error=last.error,
        logprobs=tuple(entry for delta in deltas for entry in delta.logprobs),
        prompt_logprobs=deltas[0].prompt_logprobs,
        index=last.index,
        reasoning="".join(delta.reasoning for delta in deltas),
        tool_calls=_whole_calls(deltas),
    )


def _whole_calls(deltas: Sequence[RequestDelta]) -> tuple[ToolCallDelta, ...]:
    calls: dict[int, ToolCallDelta] = {}
    for call in (call for delta in deltas for call in delta.tool_calls):
        calls[call.index] = calls[call.index].then(call) if call.index in calls else call
    return tuple(calls.values())
