"""What the engine is asked for a handoff's work."""

from __future__ import annotations

from typing import Any

import pytest

from baton_contracts.handoffs import EngineWork
from baton_contracts.prompt import (
    Message,
    Part,
    Prompt,
    Sampling,
    StructuredOutput,
    Tool,
    ToolCall,
    ToolChoice,
)
from baton_engine import InvalidParameter, OutputFormat, QueueFull, SamplingParams
from baton_engine_worker import asking
from baton_engine_worker.dialect import Dialect
from tests.support.fake_engine import FakeEngine

PLAIN = Dialect()
SHOWS_TOOLS = Dialect(template_shows_tools=True)


def prompt(*messages: tuple[Any, tuple[str, ...]]) -> Prompt:
    return Prompt(
        messages=tuple(
            Message(role=role, parts=tuple(Part(text=text) for text in texts)) for role, texts in messages
        )
    )


def test_parts_are_joined_and_a_developer_speaks_as_the_system() -> None:
    asked = prompt(("developer", ("Be ", "brief.")), ("user", ("[1] doc", "Why?")), ("tool", ("42",)))
    assert asking.chat_messages(asked) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "[1] docWhy?"},
        {"role": "tool", "content": "42"},
    ]


def test_calls_results_and_null_content_as_templates_expect_them() -> None:
    call = ToolCall(call_id="c1", name="add", arguments='{"a":1}')
    asked = Prompt(
        messages=(
            Message(role="assistant", parts=(), tool_calls=(call,)),
            Message(role="tool", parts=(Part(text="3", origin="tool"),), tool_call_id="c1"),
            Message(role="tool", parts=(Part(text="4", origin="tool"),), tool_call_id="of a lost message"),
        )
    )
    function = {"name": "add", "arguments": '{"a":1}'}
    assert asking.chat_messages(asked) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "3", "name": "add", "tool_call_id": "c1"},
        {"role": "tool", "content": "4", "tool_call_id": "of a lost message"},
    ]


def test_tools_as_templates_expect_them() -> None:
    tools = (Tool(name="f", description="Does f.", parameters='{"type":"object"}'), Tool(name="g"))
    assert asking.chat_tools(tools) == [
        {
            "type": "function",
            "function": {"name": "f", "description": "Does f.", "parameters": {"type": "object"}},
        },
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert asking.chat_tools(()) is None
    with pytest.raises(InvalidParameter) as rejected:
        asking.chat_tools((Tool(name="f", parameters="[1"),))
    assert rejected.value.param == "tools[0].function.parameters"


def test_template_variables_reach_the_template() -> None:
    asked = prompt(("user", ("four",))).model_copy(update={"template_variables": '{"enable_thinking":false}'})
    template = Template()
    asking.prompt_token_ids(asked, template, PLAIN)
    assert template.variables == {"enable_thinking": False}
    broken = asked.model_copy(update={"template_variables": "[]"})
    with pytest.raises(InvalidParameter) as rejected:
        asking.prompt_token_ids(broken, template, PLAIN)
    assert rejected.value.param == "chat_template_kwargs"


def test_a_template_that_shows_tools_gets_them_and_another_gets_words() -> None:
    asked = prompt(("user", ("four",))).model_copy(update={"tools": (Tool(name="add"),)})
    template = Template()
    asking.prompt_token_ids(asked, template, SHOWS_TOOLS)
    assert [tool["function"]["name"] for tool in template.tools] == ["add"]
    assert template.messages == [{"role": "user", "content": "four"}]
    asking.prompt_token_ids(asked, template, PLAIN)
    assert template.tools is None
    assert [message["role"] for message in template.messages] == ["system", "user"]
    assert '{"name": "add"' in template.messages[0]["content"]


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


class Template:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.variables: dict[str, Any] = {}
        self.messages: list[dict[str, Any]] = []
        self.tools: Any = None

    def apply_chat_template(self, messages: list[dict[str, Any]], tools: Any, **variables: Any) -> list[int]:
        if self.error:
            raise self.error
        self.variables, self.messages, self.tools = variables, messages, tools
        return [len(message["content"]) for message in messages]


def test_a_template_that_does_not_take_the_messages_is_the_clients_fault() -> None:
    assert asking.prompt_token_ids(prompt(("user", ("four",))), Template(), PLAIN) == [4]
    with pytest.raises(InvalidParameter) as rejected:
        asking.prompt_token_ids(
            prompt(("assistant", ("x",))), Template(ValueError("roles must alternate")), PLAIN
        )
    assert rejected.value.param == "messages"
    assert "roles must alternate" in rejected.value.message
    with pytest.raises(QueueFull):
        asking.prompt_token_ids(prompt(("user", ("x",))), Template(QueueFull(1, 1, "requests")), PLAIN)


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


def raw(text: str = "One two", **more: Any) -> Prompt:
    return Prompt(messages=(Message(role="user", parts=(Part(text=text),)),), rendering="raw", **more)


def test_a_raw_prompt_is_its_text_and_no_chat() -> None:
    tokenizer = FakeEngine().tokenizer
    assert asking.prompt_token_ids(raw(), tokenizer, PLAIN) == [2, 1, 1]
    assert asking.prompt_token_ids(raw(add_special_tokens=False), tokenizer, PLAIN) == [1, 1]


def test_ids_that_spell_the_judged_text_are_used_and_others_refused() -> None:
    tokenizer = FakeEngine().tokenizer
    assert asking.prompt_token_ids(raw("<7><8>", token_ids=(7, 8)), tokenizer, PLAIN) == [7, 8]
    with pytest.raises(InvalidParameter) as refused:
        asking.prompt_token_ids(raw("<7><9>", token_ids=(7, 8)), tokenizer, PLAIN)
    assert refused.value.param == "prompt"


def test_the_last_message_goes_on_or_no_answer_is_opened() -> None:
    seen: list[dict[str, Any]] = []

    class Watched:
        def apply_chat_template(self, messages: Any, tools: Any = None, **variables: Any) -> list[int]:
            seen.append(variables)
            return [1]

    for rendering in ("chat", "unopened", "continued"):
        asked = prompt(("user", ("Hi",))).model_copy(update={"rendering": rendering})
        asking.prompt_token_ids(asked, Watched(), PLAIN)
    assert seen == [
        {},
        {"add_generation_prompt": False},
        {"add_generation_prompt": False, "continue_final_message": True},
    ]


def test_what_goes_on_behind_a_raw_prompt_is_text_whatever_it_looks_like() -> None:
    work = EngineWork(model="m", prompt=raw("<think>"))
    assert asking.output_format(work, Dialect(thinks=True)) == OutputFormat()
