"""Drives a tiny engine step by step, for tests that look at what each step does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from baton_engine import EngineRequest, RequestDelta, SamplingParams
from baton_engine.admission import build_request
from baton_engine.assembly import LoadedEngine
from baton_engine.request import Request
from baton_engine.scheduler import StepPlan

GREEDY = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)


def ask(
    request_id: str, prompt: Sequence[int], sampling: SamplingParams = GREEDY, **more: Any
) -> EngineRequest:
    return EngineRequest(request_id, prompt_token_ids=prompt, sampling=sampling, **more)


def add(engine: LoadedEngine, asked: EngineRequest) -> Request:
    """As AsyncEngine.submit does. Raises RequestRejected."""
    request = build_request(asked, engine.limits, engine.tokenizer, engine.grammars)
    engine.core.waiting_room.enter(request)
    engine.core.add(request)
    return request


def drain(engine: LoadedEngine, most_steps: int = 2_000) -> dict[str, list[RequestDelta]]:
    """Steps until there is no work; all deltas by request."""
    answers: dict[str, list[RequestDelta]] = {}
    while engine.core.has_work:
        assert most_steps > 0, "the engine does not come to an end"
        most_steps -= 1
        for delta in engine.core.step():
            answers.setdefault(delta.request_id, []).append(delta)
    return answers


def token_ids(deltas: Sequence[RequestDelta]) -> list[int]:
    return [token_id for delta in deltas for token_id in delta.token_ids]


def text(deltas: Sequence[RequestDelta]) -> str:
    return "".join(delta.text for delta in deltas)


def edit_logits(engine: LoadedEngine, edit: Callable[[Sequence[Request], Tensor], None]) -> None:
    """Lets `edit` change the logits of each step, one row for each request that samples, before sampling.

    The rows of guesses stay as the model gave them.
    """
    run = engine.core.runner.run

    def edited(plan: StepPlan) -> Tensor:
        logits = run(plan).clone()
        edit([chunk.request for chunk in plan.chunks if chunk.samples], logits)
        return logits

    engine.core.runner.run = edited  # type: ignore[method-assign]


def script_tokens(engine: LoadedEngine, token_for: Callable[[int], int]) -> None:
    """The model prefers token_for(n) as the n-th token of an answer (from 0), by far."""

    def prefer(requests: Sequence[Request], logits: Tensor) -> None:
        for row, request in enumerate(requests):
            logits[row, token_for(request.num_answer_tokens)] = 1e4

    edit_logits(engine, prefer)
