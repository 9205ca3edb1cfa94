"""What the engine is asked for a handoff's work."""

from __future__ import annotations

from typing import Any

import pytest

from baton_contracts.handoffs import EngineWork
from baton_contracts.prompt import (
    Sampling,
    StructuredOutput,
    Tool,
    ToolChoice,
)
from baton_engine import OutputFormat, SamplingParams
from baton_engine_worker import asking
from baton_engine_worker.dialect import Dialect
from tests.support.fake_engine import FakeEngine
from tests.support.prompts import prompt, raw

PLAIN = Dialect()


def test_calls_are_read_only_of_tools_that_were_offered() -> None:
    work = EngineWork(model="m", prompt=prompt(("user", ("x",))))
    thinker = Dialect("pythonic", thinks=True)
    assert asking.output_format(work, thinker) == OutputFormat(reasoning=True)
    offered = work.prompt.model_copy(update={"tools": (Tool(name="f"), Tool(name="g"))})
    work = work.model_copy(update={"prompt": offered})
    assert asking.output_format(work, thinker) == OutputFormat(
        reasoning=True, tool_calls="pythonic", tool_names=frozenset({"f", "g"})
    )
    assert asking.output_format(work, PLAIN).tool_calls == "hermes"
    assert not asking.output_format(work, PLAIN).reasoning
    single = work.model_copy(update={"tool_choice": ToolChoice(parallel=False)})
    assert asking.output_format(single, PLAIN).one_call
    assert not asking.output_format(work, PLAIN).one_call
    none = work.model_copy(update={"tool_choice": ToolChoice(mode="none")})
    assert asking.output_format(none, PLAIN) == OutputFormat()


class Thinker(FakeEngine):
    """Its prompts end with `tail`."""

    def __init__(self, tail: str) -> None:
        super().__init__()
        self.tokenizer = Tail(tail)  # type: ignore[assignment]


class Tail:
    def __init__(self, tail: str) -> None:
        self._tail = tail

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return self._tail


@pytest.mark.parametrize(
    ("tail", "after", "reasoning"), [("<think>\n", "</think>", True), ("assistant\n", "", False)]
)
def test_a_form_comes_behind_the_thinking_where_the_template_opens_it(
    tail: str, after: str, reasoning: bool
) -> None:
    form = StructuredOutput(kind="json_object", param="response_format")
    work = EngineWork(model="m", prompt=prompt(("user", ("x",))), sampling=Sampling(structured=form))
    asked = asking.engine_request(
        work, [1], Thinker(tail), Dialect(thinks=True), request_id="r", default_max_tokens=5, room=100
    )
    assert asked.sampling.structured is not None
    assert asked.sampling.structured.after == after
    assert asked.output_format.reasoning is reasoning


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(), 10),
        (Sampling(truncate_prompt_tokens=3), 3),
        (Sampling(truncate_prompt_tokens=30), 10),
        (Sampling(truncate_prompt_tokens=-1), 7),
        (Sampling(truncate_prompt_tokens=-1, max_tokens=3), 5),
        (Sampling(truncate_prompt_tokens=-1, max_tokens=300), 1),
    ],
)
def test_a_prompt_is_cut_at_its_beginning(sampling: Sampling, kept: int) -> None:
    assert asking.truncated(list(range(10)), sampling, 8) == list(range(10))[-kept:]


def test_all_that_changes_the_choice_of_tokens_reaches_the_engine() -> None:
    changes: dict[str, Any] = {
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.5,
        "logit_bias": {3: 2.0},
        "bad_words": ("no",),
        "allowed_token_ids": (3, 4),
        "n": 3,
        "logprobs": 2,
        "prompt_logprobs": 1,
    }
    chosen = asking.sampling_params(Sampling(**changes), {}, 30)
    assert chosen == SamplingParams(max_tokens=30, **changes)
    assert asking.sampling_params(Sampling(), {"repetition_penalty": 1.1}, 1).repetition_penalty == 1.1


def test_the_clients_words_win_over_the_models_and_those_over_ours() -> None:
    defaults = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "eos_token_id": 2, "min_p": None}
    chosen = asking.sampling_params(Sampling(temperature=0.0, seed=5, stop=("a",)), defaults, 30)
    assert chosen == SamplingParams(
        max_tokens=30, temperature=0.0, top_p=0.95, top_k=20, min_p=0.0, seed=5, stop=("a",)
    )
    assert asking.sampling_params(Sampling(), {}, 30) == SamplingParams(max_tokens=30)


@pytest.mark.parametrize(
    ("asked", "prompt_tokens", "expected"),
    [
        (Sampling(), 100, 50),
        (Sampling(), 960, 40),
        (Sampling(), 1000, 1),
        (Sampling(), 2000, 1),
        (Sampling(min_tokens=60), 100, 60),
        (Sampling(max_tokens=5000), 100, 5000),
    ],
    ids=["default", "what is left", "nothing left", "too long", "at least min", "as asked"],
)
def test_the_bound_of_an_answer(asked: Sampling, prompt_tokens: int, expected: int) -> None:
    work = EngineWork(model="m", prompt=prompt(("user", ("x",))), sampling=asked)
    assert asking.max_tokens(work, prompt_tokens, default=50, room=1000) == expected


def test_what_goes_on_behind_a_raw_prompt_is_text_whatever_it_looks_like() -> None:
    work = EngineWork(model="m", prompt=raw("<think>"))
    assert asking.output_format(work, Dialect(thinks=True)) == OutputFormat()
