"""A question in OpenAI's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from baton_common.errors import RequestFailed
from baton_common.routes import Target
from baton_contracts.prompt import (
    ChatRequest,
    Message,
    Part,
    Prompt,
    Sampling,
    StructuredOutput,
    Tool,
    ToolCall,
    ToolChoice,
)
from baton_llm_gateway.providers.request_body import request_body

TARGET = Target("there", "https://there.test/v1", model="up")
ASKED = (Message(role="user", parts=(Part(text="Hi "), Part(text="<PERSON_1>"))),)


def sent(
    target: Target = TARGET,
    prompt: dict[str, Any] | None = None,
    chat: dict[str, Any] | None = None,
    **sampling: Any,
) -> dict[str, Any]:
    asked = Prompt(**{"messages": ASKED} | (prompt or {}))
    request = ChatRequest(model="m", messages=asked.messages, sampling=Sampling(**sampling), **(chat or {}))
    return json.loads(request_body(target, request, asked))


def test_only_what_was_asked_is_sent() -> None:
    assert sent() == {"model": "up", "messages": [{"role": "user", "content": "Hi <PERSON_1>"}]}


def test_all_that_the_specification_knows() -> None:
    body = sent(
        max_tokens=3,
        temperature=0,
        top_p=0.5,
        seed=7,
        stop=("a", "b"),
        presence_penalty=1,
        frequency_penalty=-1,
        logit_bias={5: -100.0},
        n=2,
        logprobs=0,
        chat={"stream": True},
    )
    del body["model"], body["messages"]
    assert body == {
        "max_tokens": 3,
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 7,
        "stop": ["a", "b"],
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "logit_bias": {"5": -100.0},
        "n": 2,
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    newer = Target("n", "https://n.test/v1", model="up", max_tokens_field="max_completion_tokens")
    assert sent(newer, max_tokens=3)["max_completion_tokens"] == 3


def test_calls_and_their_results_go_back_as_they_were() -> None:
    call = ToolCall(call_id="c1", name="look", arguments='{"b": 1, "a": null}')
    messages = (
        Message(role="assistant", parts=(), tool_calls=(call,)),
        Message(role="tool", parts=(Part(text="42"),), tool_call_id="c1"),
    )
    tools = (Tool(name="look", parameters='{"z": 1, "a": {}}', strict=True),)
    body = sent(
        prompt={"messages": messages, "tools": tools}, chat={"tool_choice": ToolChoice(mode="required")}
    )
    assert body["messages"][0]["content"] is None
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == '{"b": 1, "a": null}'
    assert body["messages"][1] == {"role": "tool", "content": "42", "tool_call_id": "c1"}
    assert list(body["tools"][0]["function"]["parameters"]) == ["z", "a"]
    assert body["tool_choice"] == "required"
    named = ToolChoice(mode="required", name="look", parallel=False)
    body = sent(prompt={"tools": tools}, chat={"tool_choice": named})
    assert body["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert body["parallel_tool_calls"] is False


def test_structured_output() -> None:
    form = StructuredOutput(kind="json_schema", text='{"type": "object"}', param="response_format")
    assert sent(structured=form)["response_format"]["json_schema"]["schema"] == {"type": "object"}
    regex = StructuredOutput(kind="regex", text="a+", param="guided_regex")
    takes = Target("t", "https://t.test/v1", extras=frozenset({"structured_outputs"}))
    assert sent(takes, structured=regex)["structured_outputs"] == {"regex": "a+"}
    with pytest.raises(RequestFailed) as refused:
        sent(structured=regex)
    assert refused.value.error.param == "guided_regex"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", 5),
        ("min_p", 0.1),
        ("repetition_penalty", 1.1),
        ("min_tokens", 2),
        ("stop_token_ids", (3,)),
        ("ignore_eos", True),
        ("skip_special_tokens", False),
        ("bad_words", ("x",)),
        ("allowed_token_ids", (1, 2)),
        ("truncate_prompt_tokens", 9),
    ],
)
def test_extras_are_sent_where_they_are_taken_and_refused_by_name_elsewhere(name: str, value: Any) -> None:
    takes = Target("t", "https://t.test/v1", extras=frozenset({name}))
    assert sent(takes, **{name: value})[name] == (list(value) if isinstance(value, tuple) else value)
    with pytest.raises(RequestFailed) as refused:
        sent(**{name: value})
    assert (refused.value.error.code, refused.value.error.param) == ("unsupported_parameter", name)


def test_raw_prompts_and_token_ids_are_our_engines_own() -> None:
    with pytest.raises(RequestFailed) as refused:
        sent(prompt={"rendering": "continued"})
    assert refused.value.error.param == "continue_final_message"
    with pytest.raises(RequestFailed) as refused:
        sent(return_token_ids=True)
    assert refused.value.error.param == "return_token_ids"
